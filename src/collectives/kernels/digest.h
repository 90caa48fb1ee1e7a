// Compares copies of tensors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::collectives {

// Returns a number that differs, but for one in 2^64, where bytes differ: in a value, in their order or in their
// count. For comparing copies that nobody forges. `seed`: the digest of what comes before, or 0.
uint64_t digest_of(const void* data, size_t size, uint64_t seed);

}  // namespace hvd::collectives
