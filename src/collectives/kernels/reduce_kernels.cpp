#include "collectives/kernels/reduce_kernels.h"

#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "base/half.h"
#include "base/platform_cpu.h"

namespace hvd::collectives {
namespace {

template <typename T>
void fill(void* out, hvd_reduce_op op, size_t count, T zero, T one, T lowest, T highest) {
  T value = zero;
  if (op == HVD_PRODUCT) value = one;
  if (op == HVD_MIN) value = highest;
  if (op == HVD_MAX) value = lowest;
  std::fill_n(static_cast<T*>(out), count, value);
}

template <typename T>
void fill(void* out, hvd_reduce_op op, size_t count) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) {
    fill<T>(out, op, count, 0, 1, -Limits::infinity(), Limits::infinity());
  } else {
    fill<T>(out, op, count, 0, 1, Limits::lowest(), Limits::max());
  }
}

}  // namespace

Scale scale_by(double factor) {
  Scale scale;
  scale.factor = factor;
  scale.active = factor != 1.0;
  return scale;
}

Scale divide_by(int32_t divisor) {
  Scale scale = scale_by(1.0 / divisor);
  scale.divisor = divisor;
  scale.is_inexact = (divisor & (divisor - 1)) != 0;
  return scale;
}

ReduceFunction reduce_function(hvd_dtype dtype, hvd_reduce_op op) {
  static const auto find = cpu_has_avx512() ? avx512::find
                           : cpu_has_avx2() ? avx2::find
                                            : baseline::find;
  return find(dtype, op);
}

ReduceFunction part_function(hvd_dtype dtype, hvd_reduce_op op) {
  static const auto find = cpu_has_avx512() ? avx512::find_part
                           : cpu_has_avx2() ? avx2::find_part
                                            : baseline::find_part;
  return find(dtype, op);
}

void fill_neutral(void* out, hvd_dtype dtype, hvd_reduce_op op, size_t count) {
  switch (dtype) {
    case HVD_UINT8:
      return fill<uint8_t>(out, op, count);
    case HVD_INT8:
      return fill<int8_t>(out, op, count);
    case HVD_UINT16:
      return fill<uint16_t>(out, op, count);
    case HVD_INT16:
      return fill<int16_t>(out, op, count);
    case HVD_INT32:
      return fill<int32_t>(out, op, count);
    case HVD_INT64:
      return fill<int64_t>(out, op, count);
    case HVD_FLOAT16:
      return fill<uint16_t>(out, op, count, 0, 0x3c00, 0xfc00, 0x7c00);
    case HVD_FLOAT32:
      return fill<float>(out, op, count);
    case HVD_FLOAT64:
      return fill<double>(out, op, count);
    case HVD_BOOL:
      return fill<uint8_t>(out, op, count, 0, 1, 0, 1);
    case HVD_BFLOAT16:
      return fill<uint16_t>(out, op, count, 0, 0x3f80, 0xff80, 0x7f80);
    case HVD_UINT32:
      return fill<uint32_t>(out, op, count);
    case HVD_UINT64:
      return fill<uint64_t>(out, op, count);
  }
}

void to_float32(float* to, const void* from, int32_t dtype, size_t count) {
  const auto* in = static_cast<const uint16_t*>(from);
  if (dtype == HVD_FLOAT16) {
    for (size_t i = 0; i < count; ++i) to[i] = float_of_half(in[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = float_of_bfloat(in[i]);
  }
}

void to_storage_type(void* to, const float* from, int32_t dtype, size_t count, const Scale& scale) {
  auto* out = static_cast<uint16_t*>(to);
  if (scale.is_inexact) {
    const auto divisor = static_cast<float>(scale.divisor);
    if (dtype == HVD_FLOAT16) {
      for (size_t i = 0; i < count; ++i) out[i] = half_of_float(from[i] / divisor);
    } else {
      for (size_t i = 0; i < count; ++i) out[i] = bfloat_of_float(from[i] / divisor);
    }
    return;
  }
  const float factor = scale.active ? static_cast<float>(scale.factor) : 1.0f;
  if (dtype == HVD_FLOAT16) {
    for (size_t i = 0; i < count; ++i) out[i] = half_of_float(from[i] * factor);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = bfloat_of_float(from[i] * factor);
  }
}

}  // namespace hvd::collectives
