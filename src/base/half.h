// Converts float16 and bfloat16 bits from and to float32, rounding to nearest even. Every float32 NaN
// becomes the same NaN. Without branches, so that loops vectorize. Internal linkage on purpose: sources
// compiled for other instruction sets include this file and must not share code with the rest.
#pragma once

#include <stdint.h>

namespace hvd {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16Bits {
  uint16_t bits;
};

inline float float_of_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of_half(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  // The exponent's bias changes from 15 to 127: add 112 once for normal numbers, twice for infinities and NaNs.
  const uint32_t special = magnitude >= (0x7c00u << 13) ? (112u << 23) : 0u;
  const uint32_t normal = magnitude + (112u << 23) + special;
  // For a subnormal, set the smallest normal exponent, then subtract the value of the implicit leading bit.
  const float shifted = float_of_bits(magnitude + (113u << 23)) - float_of_bits(113u << 23);
  const uint32_t bits = magnitude < (0x0400u << 13) ? bits_of_float(shifted) : normal;
  return float_of_bits(bits | sign);
}

inline uint16_t half_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Adding 0.5 shifts the bits of a subnormal to the low end of the mantissa, and rounds them.
  const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  const uint32_t normal = (rounded - (112u << 23)) >> 13;
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = (magnitude >= 0x477ff000u ? 0x7c00u : half) | sign;
  return static_cast<uint16_t>(magnitude > 0x7f800000u ? 0x7e00u : half);
}

inline float float_of_bfloat(uint16_t bfloat) {
  return float_of_bits(static_cast<uint32_t>(bfloat) << 16);
}

inline uint16_t bfloat_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

}  // namespace
}  // namespace hvd
