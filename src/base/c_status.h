// Passes a Status through a C interface: returns its code, and writes its message into the caller's
// buffer.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>

#include "base/status.h"

namespace hvd {

// Names what the system refused: memory, a thread, a descriptor.
Status status_of(const std::exception& thrown);

// Cut to the buffer's size where it must be, and always ended by a zero.
inline int to_c_status(const Status& status, char* error, size_t size) {
  if (!status.ok() && error != nullptr && size > 0) {
    const size_t length = std::min(size - 1, status.message().size());
    std::memcpy(error, status.message().data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(status.code());
}

// Returns the status of the body, or that of an exception that it throws.
template <typename Body>
int c_call(char* error, size_t size, Body body) {
  try {
    return to_c_status(body(), error, size);
  } catch (const std::exception& failure) {
    return to_c_status(status_of(failure), error, size);
  }
}

}  // namespace hvd
