// A parser under test: HVD_FUZZ_TARGET(hostfile) { ... } gets `data` and `size`, and returns 0. It defines libFuzzer's
// entry point, or an entry of a program that runs several corpora (corpus_main.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef HVD_LIBFUZZER
#define HVD_FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
struct FuzzTarget {
  FuzzTarget(const char* name, int (*run)(const uint8_t* data, size_t size));
};
#define HVD_FUZZ_TARGET(name)                               \
  static int run_##name(const uint8_t* data, size_t size);  \
  static const FuzzTarget name##_target(#name, run_##name); \
  static int run_##name([[maybe_unused]] const uint8_t* data, size_t size)
#endif
