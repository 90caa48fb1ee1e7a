#include "collectives/kernels/adasum_kernels.h"

#include <stdint.h>

#include "base/check.h"
#include "base/half.h"

namespace hvd::collectives {
namespace {

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
