// Maps a batch's type and reduction to NCCL's, if NCCL has them. Pure.
#pragma once

#include <optional>
#include <vector>

#include "horovod/plugin_op.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

struct NcclReduction {
  int type = abi::kUint8;
  int operation = abi::kSum;
  double factor = 1;            // not 1: multiplies each input before the sum
  std::vector<double> after{};  // multiply the sum, one after another
};

// Returns NCCL's reduction for a batch in a set of `size` ranks, or nullopt if NCCL cannot give the right result:
// - 16-bit integers and Adasum, which NCCL lacks;
// - minima and maxima of floating-point numbers, in which NCCL ignores a NaN;
// - averages of integers below 64 bits, because NCCL's sum wraps around;
// - prescale and postscale factors of integers, except for an average, and of reductions other than a sum.
// `has_factors`: this NCCL can multiply before a sum; without it, factors give nullopt too. The factors before and
// after a sum become one factor before it, except for float16, in which the products could underflow, and
// for bfloat16, which has too few bits for the factor.
std::optional<NcclReduction> reduction_of(const hvd_batch& batch, int32_t size, bool has_factors);

// Stores a factor as a value of a floating-point type in `to`, which has at least 8 bytes.
void store_factor(int type, double factor, void* to);

}  // namespace hvd::ops::nccl
