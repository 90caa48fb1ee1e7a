// Converts exceptions of Boost and of the standard library to errors: the system has refused a descriptor,
// a thread or memory.
#pragma once

#include <boost/system/system_error.hpp>
#include <cerrno>
#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace hvd::net {

// Returns the errno value in an exception of Boost; 0 for any other exception.
inline int error_number_of(const std::exception& thrown) {
  const auto* of_boost = dynamic_cast<const boost::system::system_error*>(&thrown);
  return of_boost == nullptr ? 0 : of_boost->code().value();
}

// Returns the error of a coroutine that ended by an exception. `cut_off`: the text for a cancellation.
inline Status status_of(const std::exception_ptr& thrown, std::string cut_off) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const int number = error_number_of(error);
    if (number == ECANCELED) return internal_error(std::move(cut_off));
    return number != 0 ? system_error("cannot go on", number) : hvd::status_of(error);
  } catch (...) {
    return internal_error(std::move(cut_off));
  }
}

}  // namespace hvd::net
