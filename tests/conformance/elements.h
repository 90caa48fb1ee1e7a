// Elements of any type as float64, and reductions of them in float64: the reference for the results
// of op plugins. op_conformance.h calls it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "horovod/types.h"

namespace hvd::test {

// float16 and bfloat16, convertible to and from float64.
struct Half {
  Half() = default;
  explicit Half(double value) : bits(half_of_float(static_cast<float>(value))) {}
  explicit operator double() const { return float_of_half(bits); }
  uint16_t bits = 0;
};
struct Bfloat {
  Bfloat() = default;
  explicit Bfloat(double value) : bits(bfloat_of_float(static_cast<float>(value))) {}
  explicit operator double() const { return float_of_bfloat(bits); }
  uint16_t bits = 0;
};

// Calls use(T{}) with the type of such elements.
template <typename F>
auto with_type_of(hvd_dtype dtype, F&& use) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL:
      return use(uint8_t{});
    case HVD_INT8:
      return use(int8_t{});
    case HVD_UINT16:
      return use(uint16_t{});
    case HVD_INT16:
      return use(int16_t{});
    case HVD_INT32:
      return use(int32_t{});
    case HVD_INT64:
      return use(int64_t{});
    case HVD_UINT32:
      return use(uint32_t{});
    case HVD_UINT64:
      return use(uint64_t{});
    case HVD_FLOAT32:
      return use(float{});
    case HVD_FLOAT64:
      return use(double{});
    case HVD_FLOAT16:
      return use(Half{});
    default:
      return use(Bfloat{});
  }
}

// Load and store elements of any type as float64.
inline double load(hvd_dtype dtype, const std::byte* at) {
  return with_type_of(dtype, [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  });
}

inline void store(hvd_dtype dtype, std::byte* at, double value) {
  with_type_of(dtype, [at, value]<typename T>(T) {
    const T typed = static_cast<T>(value);
    std::memcpy(at, &typed, sizeof typed);
  });
}

// Returns small integers, exact in every type, also after a product over a few ranks.
inline double element(hvd_dtype dtype, int op, int rank, size_t i) {
  const auto mixed = (static_cast<size_t>(rank) * 7 + i * 3 + i / 11) % 5;
  if (dtype == HVD_BOOL) return mixed % 2 == 0 ? 1 : 0;
  if (op == HVD_PRODUCT) return mixed % 2 == 0 ? 1 : 2;
  return static_cast<double>(mixed);
}

inline double combine(hvd_dtype dtype, int op, double a, double b) {
  if (dtype == HVD_BOOL) {
    return op == HVD_SUM || op == HVD_MAX ? std::max(a, b) : std::min(a, b);
  }
  switch (op) {
    case HVD_MIN:
      return std::min(a, b);
    case HVD_MAX:
      return std::max(a, b);
    case HVD_PRODUCT:
      return a * b;
    default:
      return a + b;
  }
}

}  // namespace hvd::test
