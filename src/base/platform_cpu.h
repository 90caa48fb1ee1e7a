// Features of this processor beyond standard C++ and beyond the baseline of its architecture.
#pragma once

namespace hvd {

// AVX2, FMA and F16C.
bool cpu_has_avx2();
// AVX-512 F, BW, DQ and VL.
bool cpu_has_avx512();

// This source is compiled for processors that multiply and add in one instruction.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFusesMultiplyAdd = true;
#else
constexpr bool kFusesMultiplyAdd = false;
#endif

// Between two looks at a flag that another thread will set.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd
