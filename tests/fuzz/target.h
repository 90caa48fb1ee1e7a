// A parser under test: HVD_FUZZ_TARGET(hostfile) { ... } gets the input as `data` and `size`, as `text` and as `bytes`.
// Defines libFuzzer's entry point, or an entry of a program that runs several corpora (corpus_main.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"

#ifdef HVD_LIBFUZZER
#define HVD_FUZZ_ENTRY(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
struct FuzzTarget {
  FuzzTarget(const char* name, int (*run)(const uint8_t* data, size_t size));
};
#define HVD_FUZZ_ENTRY(name)                                \
  static int run_##name(const uint8_t* data, size_t size);  \
  static const FuzzTarget name##_target(#name, run_##name); \
  static int run_##name(const uint8_t* data, size_t size)
#endif

#define HVD_FUZZ_TARGET(name)                                                                 \
  static void fuzz_##name(const uint8_t* data, size_t size, std::string_view text,            \
                          hvd::ByteView bytes);                                               \
  HVD_FUZZ_ENTRY(name) {                                                                      \
    fuzz_##name(data, size, {reinterpret_cast<const char*>(data), size},                      \
                {reinterpret_cast<const std::byte*>(data), size});                            \
    return 0;                                                                                 \
  }                                                                                           \
  static void fuzz_##name([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size, \
                          [[maybe_unused]] std::string_view text,                             \
                          [[maybe_unused]] hvd::ByteView bytes)
