// The reduce kernels by themselves: both variants, conversions, scales.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "base/platform_cpu.h"
#include "collectives/kernels/reduce_kernels.h"

using namespace hvd;
using namespace hvd::collectives;

TEST_CASE("every float16 survives the way to float32 and back") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float_of_half(half);
    if (std::isnan(value)) {
      CHECK((bits & 0x7c00) == 0x7c00);
      CHECK(std::isnan(float_of_half(half_of_float(value))));
    } else {
      REQUIRE(half_of_float(value) == half);
    }
  }
  CHECK(float_of_half(0x3c00) == 1.0f);
  CHECK(float_of_half(0x0001) == std::ldexp(1.0f, -24));
  CHECK(float_of_half(0xfbff) == -65504.0f);
}

TEST_CASE("float32 is rounded to the nearest float16, to even in the middle") {
  CHECK(half_of_float(1.0f + std::ldexp(1.0f, -11)) == 0x3c00);
  CHECK(half_of_float(1.0f + 3 * std::ldexp(1.0f, -11)) == 0x3c02);
  CHECK(half_of_float(65519.0f) == 0x7bff);
  CHECK(half_of_float(65520.0f) == 0x7c00);
  CHECK(half_of_float(1e30f) == 0x7c00);
  CHECK(half_of_float(std::ldexp(1.0f, -25)) == 0);
  CHECK(half_of_float(std::ldexp(1.5f, -25)) == 1);
}

TEST_CASE("every bfloat16 survives the way to float32 and back, and rounding is to nearest even") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto bfloat = static_cast<uint16_t>(bits);
    const float value = float_of_bfloat(bfloat);
    if (std::isnan(value)) {
      CHECK(std::isnan(float_of_bfloat(bfloat_of_float(value))));
    } else {
      REQUIRE(bfloat_of_float(value) == bfloat);
    }
  }
  CHECK(bfloat_of_float(1.0f + std::ldexp(1.0f, -8)) == 0x3f80);
  CHECK(bfloat_of_float(1.0f + 3 * std::ldexp(1.0f, -8)) == 0x3f82);
}

TEST_CASE("the variants for different processors give the same bits") {
  std::vector<ReduceFunction (*)(int, int)> variants;
  if (cpu_has_avx2()) variants.push_back(avx2::find);
  if (cpu_has_avx512()) variants.push_back(avx512::find);
  if (variants.empty()) {
    MESSAGE("SKIP: this processor has neither AVX2 nor AVX-512");
    return;
  }
  std::mt19937_64 random(7);
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const size_t size = size_of(static_cast<hvd_dtype>(dtype));
    for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
      for (const double factor : {1.0, 0.25, 1.0 / 3, 1.7}) {
        const size_t count = 1500;
        std::vector<std::vector<uint64_t>> inputs(3, std::vector<uint64_t>(count));
        for (auto& input : inputs) {
          for (auto& word : input) word = random();
          // Random bits make NaNs, which have many bits for one meaning.
          auto* bytes = reinterpret_cast<uint8_t*>(input.data());
          for (size_t i = 0; i < count * size; ++i) bytes[i] &= 0x3f;
        }
        const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
        std::vector<uint64_t> a(count), b(count);
        const Scale before = scale_by(factor), after = scale_by(1.0);
        for (const size_t number : {size_t{1}, size_t{2}, size_t{3}}) {
          baseline::find(dtype, op)(a.data(), pointers, number, count, before, after);
          for (const auto find : variants) {
            find(dtype, op)(b.data(), pointers, number, count, before, after);
            CHECK(std::memcmp(a.data(), b.data(), count * size) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("two inputs are averaged wherever the result goes, by every variant to the same bits") {
  std::vector<ReduceFunction (*)(int, int)> variants = {baseline::find};
  if (cpu_has_avx2()) variants.push_back(avx2::find);
  if (cpu_has_avx512()) variants.push_back(avx512::find);
  for (const double factor : {0.5, 1.0 / 3}) {
    for (const size_t count : {size_t{1}, size_t{15}, size_t{1500}}) {
      std::vector<float> a(count), b(count), want(count);
      for (size_t i = 0; i < count; ++i) {
        a[i] = 0.1f * static_cast<float>(i) - 7;
        b[i] = 3 / (static_cast<float>(i) + 1);
        const float sum = a[i] + b[i];
        want[i] = sum * static_cast<float>(factor);
      }
      for (const auto find : variants) {
        const ReduceFunction reduce = find(HVD_FLOAT32, HVD_SUM);
        std::vector<float> apart(count), first = a, second = b;
        const void* to_apart[] = {a.data(), b.data()};
        const void* to_first[] = {first.data(), b.data()};
        const void* to_second[] = {a.data(), second.data()};
        reduce(apart.data(), to_apart, 2, count, scale_by(1), scale_by(factor));
        reduce(first.data(), to_first, 2, count, scale_by(1), scale_by(factor));
        reduce(second.data(), to_second, 2, count, scale_by(1), scale_by(factor));
        CHECK(apart == want);
        CHECK(first == want);
        CHECK(second == want);
        // A world of one leaves what is in its place.
        const void* alone[] = {apart.data()};
        reduce(apart.data(), alone, 1, count, scale_by(1), scale_by(1));
        CHECK(apart == want);
      }
    }
  }
}

TEST_CASE("the sum of many halves is rounded once") {
  // 0.001 added 512 times pairwise in half precision is far from 0.512.
  std::vector<uint16_t> input(1, half_of_float(0.001f));
  std::vector<const void*> pointers(512, input.data());
  uint16_t result = 0;
  reduce_function(HVD_FLOAT16, HVD_SUM)(&result, pointers.data(), 512, 1, scale_by(1), scale_by(1));
  CHECK(result == half_of_float(512 * float_of_half(input[0])));
}

TEST_CASE("an integer average is exact and truncates toward zero; a scale saturates") {
  const auto average = [](int64_t sum, int64_t by) {
    const void* pointers[] = {&sum};
    int64_t result = 0;
    reduce_function(HVD_INT64, HVD_SUM)(&result, pointers, 1, 1, scale_by(1),
                                        scale_by(1.0 / static_cast<double>(by)));
    return result;
  };
  CHECK(average(49, 49) == 1);
  CHECK(average(-7, 2) == -3);
  CHECK(average(7, 2) == 3);
  CHECK(average(std::numeric_limits<int64_t>::max(), 1) == std::numeric_limits<int64_t>::max());
  CHECK(average((int64_t{1} << 60) + 3, 3) == ((int64_t{1} << 60) + 3) / 3);
  int8_t small = 100;
  const void* pointers[] = {&small};
  int8_t result = 0;
  reduce_function(HVD_INT8, HVD_SUM)(&result, pointers, 1, 1, scale_by(1), scale_by(2.5));
  CHECK(result == 127);
  reduce_function(HVD_INT8, HVD_SUM)(&result, pointers, 1, 1, scale_by(1), scale_by(-2.5));
  CHECK(result == -128);
}

TEST_CASE("truth values are true or false, whatever their bits") {
  const uint8_t inputs[] = {2, 0, 255};
  uint8_t result = 9;
  const void* pointers[] = {&inputs[0], &inputs[1], &inputs[2]};
  reduce_function(HVD_BOOL, HVD_SUM)(&result, pointers, 3, 1, scale_by(1), scale_by(0.5));
  CHECK(result == 1);
  reduce_function(HVD_BOOL, HVD_PRODUCT)(&result, pointers, 3, 1, scale_by(1), scale_by(1));
  CHECK(result == 0);
}
