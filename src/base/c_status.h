// Passes a Status through a C interface: returns its code, and writes its message into the caller's
// buffer.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>

#include "base/status.h"

namespace hvd {

// Converts an exception. The error names the resource that the system refused: memory, a thread or a descriptor.
Status status_of(const std::exception& thrown);

// Truncates the message to the buffer's size, and always ends it with a null byte.
inline int to_c_status(const Status& status, char* error, size_t size) {
  if (!status.ok() && error != nullptr && size > 0) {
    const size_t length = std::min(size - 1, status.message().size());
    std::memcpy(error, status.message().data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(status.code());
}

// Returns the status of the body; an exception of the body becomes a status.
template <typename Body>
int c_call(char* error, size_t size, Body body) {
  try {
    return to_c_status(body(), error, size);
  } catch (const std::exception& failure) {
    return to_c_status(status_of(failure), error, size);
  }
}

}  // namespace hvd
