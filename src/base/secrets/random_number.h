// Random numbers from the kernel. std::random_device needs glibc 2.36, and the files of a release must run with 2.34.
#pragma once

#include <cstdint>
#include <span>

#include "base/secrets/secret.h"

namespace hvd {

inline uint64_t random_number() {
  uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

// Returns a number from 0 to less than 1.
inline double random_fraction() { return static_cast<double>(random_number() >> 11) * 0x1p-53; }

}  // namespace hvd
