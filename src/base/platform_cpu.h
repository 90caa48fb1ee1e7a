// Features of this processor beyond standard C++ and beyond the baseline of its architecture.
#pragma once

namespace hvd {

// AVX2 and F16C.
bool cpu_has_avx2();
// AVX-512 F, BW, DQ and VL.
bool cpu_has_avx512();

// Between two looks at a flag that another thread will set.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd
