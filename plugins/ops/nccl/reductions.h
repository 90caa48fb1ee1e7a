// What NCCL calls a batch's type and reduction, and what it has no word for. Pure.
#pragma once

#include <optional>

#include "horovod/plugin_op.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

struct Reduction {
  int type = abi::kUint8;
  int operation = abi::kSum;
  double factor = 1;  // other than 1: each input times it, before the sum
};

// Of a batch that reduces, for a set of `size` ranks. Nothing where NCCL has none: 16-bit integers,
// Adasum, factors of integers other than an average, factors of anything but a sum.
std::optional<Reduction> reduction_of(const hvd_batch& batch, int32_t size, bool has_factors);

// A factor in the bits of a type that has fractions; at least 8 bytes of room.
void store_factor(int type, double factor, void* to);

}  // namespace hvd::ops::nccl
