// Checks that stay in release builds: a broken invariant ends the process, with file and line. Also the macros that
// return errors to the caller.
#pragma once

namespace hvd {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

#define HVD_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::hvd::check_failed(__FILE__, __LINE__, #condition))

// Returns from the function if the Status is an error. The function may return a Status or a Result.
#define HVD_RETURN_IF_ERROR(expression)                                       \
  do {                                                                        \
    if (auto status_of_expression = (expression); !status_of_expression.ok()) \
      return status_of_expression;                                            \
  } while (0)

#define HVD_CONCAT_INNER(a, b) a##b
#define HVD_CONCAT(a, b) HVD_CONCAT_INNER(a, b)
// Assigns the value of a Result, or returns its error to the caller: HVD_ASSIGN_OR_RETURN(auto x, f()).
#define HVD_ASSIGN_OR_RETURN(declaration, expression)                                     \
  auto HVD_CONCAT(result_, __LINE__) = (expression);                                      \
  if (!HVD_CONCAT(result_, __LINE__).ok()) return HVD_CONCAT(result_, __LINE__).status(); \
  declaration = std::move(HVD_CONCAT(result_, __LINE__)).value()
// The same two macros for coroutines.
#define HVD_CO_RETURN_IF_ERROR(expression)                                    \
  do {                                                                        \
    if (auto status_of_expression = (expression); !status_of_expression.ok()) \
      co_return status_of_expression;                                         \
  } while (0)
#define HVD_CO_ASSIGN_OR_RETURN(declaration, expression)                                     \
  auto HVD_CONCAT(result_, __LINE__) = (expression);                                         \
  if (!HVD_CONCAT(result_, __LINE__).ok()) co_return HVD_CONCAT(result_, __LINE__).status(); \
  declaration = std::move(HVD_CONCAT(result_, __LINE__)).value()
