#include "collectives/kernels/reduce_kernels.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
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

double load(double value) { return value; }
double load(float value) { return value; }
double load(Half value) { return float_of_half(value.bits); }
double load(BFloat16Bits value) { return float_of_bfloat(value.bits); }
void store(double& out, double value) { out = value; }
void store(float& out, double value) { out = static_cast<float>(value); }
void store(Half& out, double value) { out = {half_of_float(static_cast<float>(value))}; }
void store(BFloat16Bits& out, double value) { out = {bfloat_of_float(static_cast<float>(value))}; }

// Several partial sums, which a compiler may keep in one vector register.
constexpr size_t kLanes = 8;

template <typename T>
Products products(const T* a, const T* b, size_t count) {
  double ab[kLanes] = {}, aa[kLanes] = {}, bb[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = load(a[i + lane]);
      const double y = load(b[i + lane]);
      ab[lane] += x * y;
      aa[lane] += x * x;
      bb[lane] += y * y;
    }
  }
  Products sum;
  for (; i < count; ++i) {
    const double x = load(a[i]);
    const double y = load(b[i]);
    sum.ab += x * y;
    sum.aa += x * x;
    sum.bb += y * y;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sum.ab += ab[lane];
    sum.aa += aa[lane];
    sum.bb += bb[lane];
  }
  return sum;
}

// Calls use() with the memory as an array of its element type.
template <typename Use>
auto with_type(hvd_dtype dtype, const void* memory, Use&& use) {
  switch (dtype) {
    case HVD_FLOAT16:
      return use(static_cast<const Half*>(memory));
    case HVD_BFLOAT16:
      return use(static_cast<const BFloat16Bits*>(memory));
    case HVD_FLOAT32:
      return use(static_cast<const float*>(memory));
    default:
      HVD_CHECK(dtype == HVD_FLOAT64);
      return use(static_cast<const double*>(memory));
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

bool adasum_knows(hvd_dtype dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
         dtype == HVD_FLOAT64;
}

Products products_of(hvd_dtype dtype, const void* a, const void* b, size_t count) {
  return with_type(dtype, a, [&]<typename T>(const T* x) {
    return products(x, static_cast<const T*>(b), count);
  });
}

Weights weights_of(const Products& products) {
  // The square root of the smallest normal float64. A vector with a smaller squared norm is treated
  // as zero, and gets a weight of 1.
  constexpr double kNothing = 0x1p-511;
  const auto keep = [&](double norm) {
    return norm < kNothing ? 1.0 : 1.0 - products.ab / (2 * norm);
  };
  return {keep(products.aa), keep(products.bb)};
}

void combine(hvd_dtype dtype, const void* a, const void* b, const Weights& weights, double* out,
             size_t count) {
  with_type(dtype, a, [&]<typename T>(const T* x) {
    const T* y = static_cast<const T*>(b);
    for (size_t i = 0; i < count; ++i) out[i] = weights.a * load(x[i]) + weights.b * load(y[i]);
  });
}

void to_float64(hvd_dtype dtype, const void* in, double* out, size_t count) {
  with_type(dtype, in, [&](const auto* from) {
    for (size_t i = 0; i < count; ++i) out[i] = load(from[i]);
  });
}

void to_storage_type(hvd_dtype dtype, const double* in, double factor, void* out, size_t count) {
  with_type(dtype, out, [&]<typename T>(const T*) {
    T* to = static_cast<T*>(out);
    for (size_t i = 0; i < count; ++i) store(to[i], factor * in[i]);
  });
}

}  // namespace hvd::collectives
