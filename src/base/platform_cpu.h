// Processor features that standard C++ and the baseline of the architecture lack.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

namespace hvd {

// Returns whether the processor has AVX2, FMA and F16C.
bool cpu_has_avx2();
// Returns whether the processor has AVX-512 F, BW, DQ and VL.
bool cpu_has_avx512();

// True if this source is compiled for processors with fused multiply-add.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFusesMultiplyAdd = true;
#else
constexpr bool kFusesMultiplyAdd = false;
#endif

// True if this source is compiled for processors that convert float16.
#ifdef __F16C__
constexpr bool kConvertsHalves = true;
#else
constexpr bool kConvertsHalves = false;
#endif
// Convert the leading elements, eight at a time, and return how many elements they converted. halves_of_floats()
// converts all NaNs to 0x7e00. Internal linkage on purpose, as in half.h.
namespace {

inline size_t floats_of_halves([[maybe_unused]] float* to, [[maybe_unused]] const void* from,
                               [[maybe_unused]] size_t count) {
  size_t i = 0;
#ifdef __F16C__
  const auto* bits = static_cast<const uint16_t*>(from);
  for (; i + 8 <= count; i += 8) {
    const auto* halves = reinterpret_cast<const __m128i*>(bits + i);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(halves)));
  }
#endif
  return i;
}

inline size_t halves_of_floats([[maybe_unused]] void* to, [[maybe_unused]] const float* from,
                               [[maybe_unused]] size_t count) {
  size_t i = 0;
#ifdef __F16C__
  auto* bits = static_cast<uint16_t*>(to);
  const __m256 nan = _mm256_set1_ps(__builtin_nanf(""));
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(from + i);
    const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const __m128i halves =
        _mm256_cvtps_ph(_mm256_blendv_ps(value, nan, is_nan), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bits + i), halves);
  }
#endif
  return i;
}

}  // namespace

// Call this between two reads of a flag that another thread will set.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd
