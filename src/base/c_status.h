// Passes a Status through a C interface: returns its code, and writes its message into the caller's
// buffer.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>

#include "base/status.h"

namespace hvd {

// Says what the system refused: memory, a thread, a descriptor.
Status status_of(const std::exception& thrown);

// Cut to the buffer's size where it must be, and always ended by a zero.
inline int tell(const Status& status, char* error, size_t size) {
  if (!status.ok() && error != nullptr && size > 0) {
    const size_t length = std::min(size - 1, status.message().size());
    std::memcpy(error, status.message().data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(status.code());
}

// Tells what the body returns, and what it throws.
template <typename Body>
int told(char* error, size_t size, Body body) {
  try {
    return tell(body(), error, size);
  } catch (const std::exception& failure) {
    return tell(status_of(failure), error, size);
  }
}

}  // namespace hvd
