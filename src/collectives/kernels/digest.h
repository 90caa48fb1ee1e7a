// Compares copies of tensors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::collectives {

// Returns a 64-bit hash of the bytes. Two copies that differ in a value, the order or the count have equal hashes
// with a probability of 2^-64; not safe against forgery. `seed`: the digest of the preceding bytes, or 0.
uint64_t digest_of(const void* data, size_t size, uint64_t seed);

}  // namespace hvd::collectives
