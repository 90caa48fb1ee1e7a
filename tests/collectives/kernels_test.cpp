// The reduce kernels alone: both variants, conversions, scales.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
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
        std::vector<std::vector<uint64_t>> inputs(5, std::vector<uint64_t>(count));
        for (auto& input : inputs) {
          for (auto& word : input) word = random();
          // Random bits contain NaNs, which have many representations.
          auto* bytes = reinterpret_cast<uint8_t*>(input.data());
          for (size_t i = 0; i < count * size; ++i) bytes[i] &= 0x3f;
        }
        std::vector<const void*> pointers;
        for (const auto& input : inputs) pointers.push_back(input.data());
        std::vector<uint64_t> a(count), b(count);
        const Scale before = scale_by(factor), after = scale_by(1.0);
        for (size_t number = 1; number <= pointers.size(); ++number) {
          baseline::find(dtype, op)(a.data(), pointers.data(), number, count, before, after);
          for (const auto find : variants) {
            find(dtype, op)(b.data(), pointers.data(), number, count, before, after);
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
        // With one rank, the input and output are the same buffer and stay unchanged.
        const void* alone[] = {apart.data()};
        reduce(apart.data(), alone, 1, count, scale_by(1), scale_by(1));
        CHECK(apart == want);
      }
    }
  }
}

namespace {

std::vector<ReduceFunction (*)(int, int)> all_variants() {
  std::vector<ReduceFunction (*)(int, int)> variants = {baseline::find};
  if (cpu_has_avx2()) variants.push_back(avx2::find);
  if (cpu_has_avx512()) variants.push_back(avx512::find);
  return variants;
}

// Random bits, which include every kind of number, and runs of zeros and of subnormals longer than
// a block, whose quotients by even divisors are midway between two numbers.
template <typename Bits>
std::vector<Bits> bits_of_all_kinds(size_t count, unsigned seed, Bits exponent) {
  std::mt19937_64 random(seed);
  const auto sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  std::vector<Bits> bits(count);
  for (size_t i = 0; i < count; ++i) {
    const auto any = static_cast<Bits>(random());
    bits[i] = any;
    if (i % 4096 >= 2048) bits[i] = static_cast<Bits>((any & sign) | (i % 1000));
    if (i % 4096 >= 3072) bits[i] = static_cast<Bits>(any & sign);
    if (i % 1025 == 1) bits[i] = static_cast<Bits>((any & sign) | exponent);        // infinity
    if (i % 1027 == 2) bits[i] = static_cast<Bits>((any & sign) | exponent | 1u);   // NaN
    if (i % 129 == 3) bits[i] = static_cast<Bits>((any & sign) | (exponent - 1u));  // largest value
  }
  return bits;
}

// Divides sums of one to three inputs, in place and apart, and compares the bits with `quotient`.
template <typename Bits, typename Sum, typename Quotient, typename IsNan>
void check_averages(hvd_dtype dtype, Bits exponent, Sum&& sum, Quotient&& quotient,
                    IsNan&& is_nan) {
  for (const int32_t by : {1, 2, 3, 4, 5, 6, 7, 8, 9, 1000}) {
    for (const size_t count : {size_t{1}, size_t{13}, size_t{4099}}) {
      std::vector<std::vector<Bits>> inputs;
      const void* pointers[3];
      for (unsigned k = 0; k < 3; ++k) {
        inputs.push_back(
            bits_of_all_kinds<Bits>(count, 10 * k + static_cast<unsigned>(by), exponent));
        pointers[k] = inputs.back().data();
      }
      for (const size_t number : {size_t{1}, size_t{2}, size_t{3}}) {
        std::vector<Bits> want(count);
        for (size_t i = 0; i < count; ++i) want[i] = quotient(sum(inputs, number, i), by);
        for (const auto find : all_variants()) {
          std::vector<Bits> apart(count), own = inputs[0];
          find(dtype, HVD_SUM)(apart.data(), pointers, number, count, scale_by(1), divide_by(by));
          const void* in_place[] = {own.data(), pointers[1], pointers[2]};
          find(dtype, HVD_SUM)(own.data(), in_place, number, count, scale_by(1), divide_by(by));
          size_t wrong = 0;
          for (size_t i = 0; i < count; ++i) {
            const bool fits = apart[i] == want[i] || (is_nan(apart[i]) && is_nan(want[i]));
            if (!fits || (own[i] != apart[i] && !is_nan(own[i]))) ++wrong;
          }
          INFO("type ", static_cast<int>(dtype), ", ", number, " inputs of ", count, " by ", by);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

template <typename T, typename Bits>
void check_float_averages(hvd_dtype dtype, Bits exponent, T (*load)(Bits), Bits (*store)(T)) {
  check_averages<Bits>(
      dtype, exponent,
      [load](const auto& inputs, size_t number, size_t i) {
        T sum = load(inputs[0][i]);
        for (size_t k = 1; k < number; ++k) sum += load(inputs[k][i]);
        return sum;
      },
      [store](T sum, int32_t by) { return store(sum / static_cast<T>(by)); },
      [load](Bits bits) { return std::isnan(load(bits)); });
}

template <typename T>
void check_integer_averages(hvd_dtype dtype) {
  using Bits = std::make_unsigned_t<T>;
  check_averages<Bits>(
      dtype, Bits{64},
      [](const auto& inputs, size_t number, size_t i) {
        Bits sum = inputs[0][i];
        for (size_t k = 1; k < number; ++k) sum = static_cast<Bits>(sum + inputs[k][i]);
        return static_cast<T>(sum);
      },
      [](T sum, int32_t by) {
        using Arithmetic = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        return static_cast<Bits>(static_cast<Arithmetic>(sum) / static_cast<Arithmetic>(by));
      },
      [](Bits) { return false; });
}

template <typename To, typename From>
To same_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace

TEST_CASE("an average is the correctly rounded quotient of the sum, in every variant and type") {
  check_float_averages<double, uint64_t>(HVD_FLOAT64, 0x7ff0000000000000,
                                         same_bits<double, uint64_t>, same_bits<uint64_t, double>);
  check_float_averages<float, uint32_t>(HVD_FLOAT32, 0x7f800000, same_bits<float, uint32_t>,
                                        same_bits<uint32_t, float>);
  check_float_averages<float, uint16_t>(HVD_FLOAT16, 0x7c00, float_of_half, half_of_float);
  check_float_averages<float, uint16_t>(HVD_BFLOAT16, 0x7f80, float_of_bfloat, bfloat_of_float);
  check_integer_averages<uint8_t>(HVD_UINT8);
  check_integer_averages<int8_t>(HVD_INT8);
  check_integer_averages<uint16_t>(HVD_UINT16);
  check_integer_averages<int16_t>(HVD_INT16);
  check_integer_averages<uint32_t>(HVD_UINT32);
  check_integer_averages<int32_t>(HVD_INT32);
  check_integer_averages<uint64_t>(HVD_UINT64);
  check_integer_averages<int64_t>(HVD_INT64);
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
  const auto average = [](int64_t sum, int32_t by) {
    const void* pointers[] = {&sum};
    int64_t result = 0;
    reduce_function(HVD_INT64, HVD_SUM)(&result, pointers, 1, 1, scale_by(1), divide_by(by));
    return result;
  };
  CHECK(average(49, 49) == 1);
  CHECK(average(-7, 2) == -3);
  CHECK(average(7, 2) == 3);
  CHECK(average(std::numeric_limits<int64_t>::max(), 1) == std::numeric_limits<int64_t>::max());
  CHECK(average((int64_t{1} << 60) + 3, 3) == ((int64_t{1} << 60) + 3) / 3);
  // A factor multiplies in float64: 49 * (1 / 49.0) is below 1.
  int64_t whole = 49;
  const void* of_whole[] = {&whole};
  reduce_function(HVD_INT64, HVD_SUM)(&whole, of_whole, 1, 1, scale_by(1), scale_by(1.0 / 49));
  CHECK(whole == 0);
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

namespace {

// Reduces inputs with at most one NaN at each place: the result has the canonical NaN there, and no
// NaN elsewhere.
template <typename T, typename Bits>
void check_nans(hvd_dtype dtype, hvd_reduce_op op, ReduceFunction reduce, size_t inputs_count,
                Bits one, Bits nan, T (*load)(Bits)) {
  const size_t count = 1037;
  std::vector<std::vector<Bits>> inputs(inputs_count, std::vector<Bits>(count, one));
  std::vector<const void*> pointers;
  for (size_t k = 0; k < inputs_count; ++k) {
    for (size_t i = k; i < count; i += inputs_count + 1) {
      const auto sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
      inputs[k][i] = static_cast<Bits>(nan | (k + 1) | (i % 2 == 0 ? sign : Bits{0}));
    }
    pointers.push_back(inputs[k].data());
  }
  size_t wrong = 0;
  for (const int32_t divisor : {1, 2, 3}) {
    for (const bool in_place : {false, true}) {
      std::vector<Bits> apart(count), own = inputs.back();
      if (in_place) pointers.back() = own.data();
      Bits* const result = in_place ? own.data() : apart.data();
      const Scale after = divisor > 1 && op == HVD_SUM ? divide_by(divisor) : scale_by(1);
      reduce(result, pointers.data(), inputs_count, count, scale_by(1), after);
      pointers.back() = inputs.back().data();
      for (size_t i = 0; i < count; ++i) {
        const bool has_nan = i % (inputs_count + 1) < inputs_count;
        if (has_nan ? result[i] != nan : std::isnan(load(result[i]))) ++wrong;
      }
    }
  }
  INFO("type ", static_cast<int>(dtype), " reduction ", static_cast<int>(op), " of ", inputs_count);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a NaN of any input is the result of every reduction, in one form") {
  for (const auto find : all_variants()) {
    for (const hvd_reduce_op op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
      for (const size_t inputs : {size_t{2}, size_t{3}, size_t{4}}) {
        check_nans<float, uint16_t>(HVD_FLOAT16, op, find(HVD_FLOAT16, op), inputs, 0x3c00, 0x7e00,
                                    float_of_half);
        check_nans<float, uint16_t>(HVD_BFLOAT16, op, find(HVD_BFLOAT16, op), inputs, 0x3f80,
                                    0x7fc0, float_of_bfloat);
        check_nans<float, uint32_t>(HVD_FLOAT32, op, find(HVD_FLOAT32, op), inputs, 0x3f800000,
                                    0x7fc00000, same_bits<float, uint32_t>);
        check_nans<double, uint64_t>(HVD_FLOAT64, op, find(HVD_FLOAT64, op), inputs,
                                     0x3ff0000000000000, 0x7ff8000000000000,
                                     same_bits<double, uint64_t>);
      }
    }
  }
}

TEST_CASE("a sum of any float16 has the bits of the conversions, in every variant") {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const auto find : all_variants()) {
    // Both zeros, the least and the greatest subnormal, a third, the greatest number, an infinity.
    for (const int bits : {0x0000, 0x8000, 0x0001, 0x83ff, 0x3555, 0x7bff, 0xfc00}) {
      const std::vector<uint16_t> other(all.size(), static_cast<uint16_t>(bits));
      const void* inputs[] = {all.data(), other.data()};
      std::vector<uint16_t> sums(all.size());
      find(HVD_FLOAT16, HVD_SUM)(sums.data(), inputs, 2, sums.size(), scale_by(1), scale_by(1));
      size_t wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        if (sums[i] != half_of_float(float_of_half(all[i]) + float_of_half(other[i]))) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a minimum of zeros is -0 and a maximum +0 where both occur, in any order") {
  const float zeros[] = {0.0f, -0.0f, 0.0f};
  for (const auto find : all_variants()) {
    for (const size_t first : {size_t{0}, size_t{1}}) {
      const void* pointers[] = {&zeros[first], &zeros[first + 1]};
      float least = 1, greatest = 1;
      find(HVD_FLOAT32, HVD_MIN)(&least, pointers, 2, 1, scale_by(1), scale_by(1));
      find(HVD_FLOAT32, HVD_MAX)(&greatest, pointers, 2, 1, scale_by(1), scale_by(1));
      CHECK(least == 0);
      CHECK(std::signbit(least));
      CHECK(greatest == 0);
      CHECK(!std::signbit(greatest));
    }
  }
}
