// The result of an operation that can fail: ok, or a code and a sentence that the user can act on.
// Ok is a null pointer and costs nothing. Callers prepend context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "horovod/types.h"

namespace hvd {

// The values of Code equal those of hvd_status.
enum class Code : int {
  kOk = HVD_OK,
  kInvalidArgument = HVD_INVALID_ARGUMENT,
  kFailedPrecondition = HVD_FAILED_PRECONDITION,
  kNotFound = HVD_NOT_FOUND,
  kDeadlineExceeded = HVD_DEADLINE_EXCEEDED,
  kUnavailable = HVD_UNAVAILABLE,
  kAborted = HVD_ABORTED,
  kPermissionDenied = HVD_PERMISSION_DENIED,
  kAlreadyExists = HVD_ALREADY_EXISTS,
  kUnimplemented = HVD_UNIMPLEMENTED,
  kInternal = HVD_INTERNAL,
  kLeft = HVD_LEFT,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool ok() const { return !failure_; }
  explicit operator bool() const { return ok(); }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  // Returns the message; empty if ok.
  const std::string& message() const;

  // Returns the rank whose loss caused this failure, or -1.
  int32_t lost_rank() const { return failure_ ? failure_->lost_rank : -1; }

  // Returns "host b: " + message with the same code and lost rank; ok stays ok.
  Status with_context(std::string_view context) const;
  // Returns a copy of this failure with the lost rank that caused it; -1 means no rank.
  Status with_lost_rank(int32_t rank) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Failure {
    Code code;
    std::string message;
    int32_t lost_rank = -1;
  };
  std::shared_ptr<const Failure> failure_;
};

inline Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
inline Status failed_precondition(std::string message) {
  return {Code::kFailedPrecondition, std::move(message)};
}
inline Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
inline Status deadline_exceeded(std::string message) {
  return {Code::kDeadlineExceeded, std::move(message)};
}
inline Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
inline Status aborted(std::string message) { return {Code::kAborted, std::move(message)}; }
inline Status permission_denied(std::string message) {
  return {Code::kPermissionDenied, std::move(message)};
}
inline Status already_exists(std::string message) {
  return {Code::kAlreadyExists, std::move(message)};
}
inline Status unimplemented(std::string message) {
  return {Code::kUnimplemented, std::move(message)};
}
inline Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

// Returns, for example, unavailable("cannot open /x: No such file or directory") for an errno value.
Status system_error(std::string_view what, int error_number);

// Returns advice for the error of a program or thread that failed to start with this errno, if a container's filter
// refuses the system call clone3; else empty.
std::string clone3_advice(int error_number);

// Converts an exception. The error names the resource that the system refused: memory, a thread or a descriptor.
Status status_of(const std::exception& thrown);

// Returns the code of a Status to a C caller, and writes the message of a failure into the caller's
// buffer, truncated to its size and with a null byte at the end.
inline int to_c_status(const Status& status, char* error, size_t size) {
  if (!status.ok() && error != nullptr && size > 0) {
    const size_t length = std::min(size - 1, status.message().size());
    std::memcpy(error, status.message().data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(status.code());
}

// Returns the code of the body's Status, as to_c_status() does. An exception of the body becomes a Status.
template <typename Body>
int c_call(char* error, size_t size, Body body) {
  try {
    return to_c_status(body(), error, size);
  } catch (const std::exception& failure) {
    return to_c_status(status_of(failure), error, size);
  }
}

}  // namespace hvd
