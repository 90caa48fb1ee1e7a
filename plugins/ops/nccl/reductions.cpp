#include "ops/nccl/reductions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "ops/common/batch_memory.h"

namespace hvd::ops::nccl {
namespace {

// NCCL's types by hvd_dtype, and its reductions by hvd_reduce_op; -1: it has none.
constexpr int kTypes[] = {abi::kUint8,
                          abi::kInt8,
                          -1,
                          -1,
                          abi::kInt32,
                          abi::kInt64,
                          abi::kFloat16,
                          abi::kFloat32,
                          abi::kFloat64,
                          abi::kUint8,
                          abi::kBfloat16,
                          abi::kUint32,
                          abi::kUint64};
constexpr int kReductions[] = {-1, abi::kSum, -1, abi::kMin, abi::kMax, abi::kProduct};

// Returns the entry; -1 for an unknown number.
template <size_t Size>
int entry(const int (&table)[Size], int32_t number) {
  return number >= 0 && number < static_cast<int32_t>(Size) ? table[number] : -1;
}

bool is_floating(int type) { return type >= abi::kFloat16; }

// Clamps a factor to the range of float16's normal numbers.
double part_for_half(double factor) {
  return std::copysign(std::clamp(std::abs(factor), 0x1p-14, 0x1p15), factor);
}

// Divides an average before the sum, because the sum could overflow. NCCL's own average does the same.
void use_half_factors(const hvd_batch& batch, int32_t size, NcclReduction* reduction) {
  const bool is_average = batch.postscale == 1.0 / size;
  const double before = is_average ? batch.prescale * batch.postscale : batch.prescale;
  reduction->factor = part_for_half(before);
  double left = before / reduction->factor * (is_average ? 1 : batch.postscale);
  while (left != 1 && left != 0) {
    reduction->after.push_back(part_for_half(left));
    left /= reduction->after.back();
  }
}

double to_bfloat(double value) {
  return static_cast<double>(float_of_bfloat(bfloat_of_float(static_cast<float>(value))));
}

// A bfloat16 factor has 8 bits. Rounded to 8 bits, 1/3 would make all results 0.2 % too large. A second factor after
// the sum corrects the error: of 128 pairs, the pair with the nearest product is used.
void use_bfloat_factors(double factor, NcclReduction* reduction) {
  reduction->factor = to_bfloat(factor);
  double best = std::abs(factor - reduction->factor), correction = 1;
  const double first = std::ldexp(std::copysign(1.0, factor), std::ilogb(factor));
  for (int step = 0; step < 128; ++step) {
    const double before = first * (1 + step / 128.0), after = to_bfloat(factor / before);
    const double error = std::abs(factor - before * after);
    if (error >= best) continue;
    best = error;
    reduction->factor = before;
    correction = after;
  }
  if (correction != 1) reduction->after.push_back(correction);
}

template <typename T>
void put(T value, void* to) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

std::optional<NcclReduction> reduction_of(const hvd_batch& batch, int32_t size, bool has_factors) {
  const bool is_bool = batch.dtype == HVD_BOOL;
  const int type = entry(kTypes, batch.dtype);
  const int operation = entry(kReductions, reduction_of_numbers(batch.dtype, batch.reduce_op));
  if (type < 0 || operation < 0) return std::nullopt;
  const bool is_extreme = batch.reduce_op == HVD_MIN || batch.reduce_op == HVD_MAX;
  // NCCL's minima and maxima ignore a NaN.
  if (is_extreme && is_floating(type)) return std::nullopt;
  NcclReduction reduction{type, operation};
  if (is_bool || (batch.prescale == 1 && batch.postscale == 1)) return reduction;
  if (batch.reduce_op != HVD_SUM) return std::nullopt;
  const double factor = batch.prescale * batch.postscale;
  const bool is_exact = type != abi::kBfloat16 || to_bfloat(factor) == factor;
  if (batch.prescale == 1 && batch.postscale == 1.0 / size && (is_exact || !has_factors)) {
    // NCCL's sum has the type of the inputs, and wraps around.
    const bool is_narrow = !is_floating(type) && type != abi::kInt64 && type != abi::kUint64;
    if (is_narrow && size > 1) return std::nullopt;
    reduction.operation = abi::kAverage;
    return reduction;
  }
  if (!has_factors || !is_floating(type)) return std::nullopt;
  if (type == abi::kFloat16) {
    use_half_factors(batch, size, &reduction);
  } else if (is_exact) {
    reduction.factor = factor;
  } else {
    use_bfloat_factors(factor, &reduction);
  }
  return reduction;
}

void store_factor(int type, double factor, void* to) {
  const auto single = static_cast<float>(factor);
  switch (type) {
    case abi::kFloat16:
      return put(half_of_float(single), to);
    case abi::kBfloat16:
      return put(bfloat_of_float(single), to);
    case abi::kFloat32:
      return put(single, to);
    default:
      return put(factor, to);
  }
}

}  // namespace hvd::ops::nccl
