// Elements of any type as float64, and what reductions make of them: the plain arithmetic that
// results of operations are held against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "horovod/types.h"

namespace hvd::test {

// Elements as float64, to and from any type.
inline double load(hvd_dtype dtype, const std::byte* at) {
  const auto as = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL:
      return as(uint8_t{});
    case HVD_INT8:
      return as(int8_t{});
    case HVD_UINT16:
      return as(uint16_t{});
    case HVD_INT16:
      return as(int16_t{});
    case HVD_INT32:
      return as(int32_t{});
    case HVD_INT64:
      return as(int64_t{});
    case HVD_UINT32:
      return as(uint32_t{});
    case HVD_UINT64:
      return as(uint64_t{});
    case HVD_FLOAT32:
      return as(float{});
    case HVD_FLOAT64:
      return as(double{});
    default: {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      return dtype == HVD_FLOAT16 ? float_of_half(bits) : float_of_bfloat(bits);
    }
  }
}

inline void store(hvd_dtype dtype, std::byte* at, double value) {
  const auto as = [at, value]<typename T>(T) {
    const T typed = static_cast<T>(value);
    std::memcpy(at, &typed, sizeof typed);
  };
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL:
      return as(uint8_t{});
    case HVD_INT8:
      return as(int8_t{});
    case HVD_UINT16:
      return as(uint16_t{});
    case HVD_INT16:
      return as(int16_t{});
    case HVD_INT32:
      return as(int32_t{});
    case HVD_INT64:
      return as(int64_t{});
    case HVD_UINT32:
      return as(uint32_t{});
    case HVD_UINT64:
      return as(uint64_t{});
    case HVD_FLOAT32:
      return as(float{});
    case HVD_FLOAT64:
      return as(double{});
    default: {
      const auto single = static_cast<float>(value);
      const uint16_t bits = dtype == HVD_FLOAT16 ? half_of_float(single) : bfloat_of_float(single);
      std::memcpy(at, &bits, sizeof bits);
    }
  }
}

// Small whole numbers, exact in every type, also after a product over a few ranks.
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
