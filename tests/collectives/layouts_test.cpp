// The same data on every layout of ranks over hosts: the same class of result (finite, infinite,
// NaN), sums and products that are rounded once, and one NaN for all ranks.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "base/dtype.h"
#include "base/half.h"
#include "collectives/checks.h"
#include "fewer.h"

using namespace hvd;
using namespace hvd::test;

namespace {

struct ReductionCase {
  int op;
  int reduce_op;
  bool averages = false;
  double prescale = 1, postscale = 1;
};

// The 16-bit elements of one rank, by rank and index.
using Values = std::vector<std::vector<uint16_t>>;

float number_of(hvd_dtype dtype, uint16_t bits) {
  return dtype == HVD_FLOAT16 ? float_of_half(bits) : float_of_bfloat(bits);
}
uint16_t bits_of(hvd_dtype dtype, double value) {
  // Intermediate float32 would round twice; round-to-odd keeps the bits for the second rounding.
  auto single = static_cast<float>(value);
  if (std::isfinite(single) && static_cast<double>(single) != value) {
    const bool is_above = std::abs(static_cast<double>(single)) > std::abs(value);
    uint32_t bits = bits_of_float(single) - (is_above ? 1u : 0u);
    single = float_of_bits(bits | 1u);
  }
  return dtype == HVD_FLOAT16 ? half_of_float(single) : bfloat_of_float(single);
}

std::vector<std::vector<int>> layouts() {
  return test::fewer<std::vector<int>>({{0, 0, 1, 1},
                                        {0, 0, 0, 0, 1, 1, 1, 1},
                                        {0, 0, 0, 0},
                                        {0, 1, 2, 3},
                                        {0, 0, 0, 1},
                                        {0, 0, 1},
                                        {0, 0, 1, 1, 2, 2}},
                                       2);
}

double combined(int reduce_op, double a, double b) {
  switch (reduce_op) {
    case HVD_PRODUCT:
      return a * b;
    case HVD_MIN:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case HVD_MAX:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    default:
      return a + b;
  }
}

double exact(const ReductionCase& how, hvd_dtype dtype, const Values& inputs, size_t i) {
  double result = how.prescale * number_of(dtype, inputs[0][i]);
  for (size_t r = 1; r < inputs.size(); ++r) {
    result = combined(how.reduce_op, result, how.prescale * number_of(dtype, inputs[r][i]));
  }
  return result * how.postscale / (how.averages ? static_cast<double>(inputs.size()) : 1.0);
}

enum class Class { kFinite, kInfinite, kNan };
Class class_of(double value) {
  return std::isnan(value) ? Class::kNan : std::isinf(value) ? Class::kInfinite : Class::kFinite;
}

// One rank's result: all elements of an allreduce, or its own rows of a reducescatter.
struct RankResult {
  std::vector<uint16_t> values;
  size_t first = 0;  // the index of values[0] among the inputs
};

Status reduce(Rank& rank, const ReductionCase& how, hvd_dtype dtype, const hvd_tuning& tuning,
              std::vector<uint16_t> input, RankResult* result) {
  const auto size = static_cast<size_t>(rank.size());
  const auto index = static_cast<size_t>(rank.rank());
  const bool scatters = how.op == HVD_REDUCESCATTER;
  const size_t kept = input.size() / size;
  result->first = scatters ? index * kept : 0;
  result->values.resize(scatters ? kept : input.size());
  std::vector<hvd_batch_tensor> tensors{{input.data(), result->values.data(),
                                         static_cast<int64_t>(input.size()), 1, nullptr, nullptr}};
  hvd_batch batch = batch_of(how.op, dtype, tensors);
  batch.tuning = &tuning;
  batch.reduce_op = how.reduce_op;
  batch.prescale = how.prescale;
  batch.postscale = how.averages ? 1.0 / rank.size() : how.postscale;
  batch.divisor = how.averages ? rank.size() : 0;
  return rank.run(batch);
}

// The inputs of all ranks, and the exact result of each element.
struct Data {
  hvd_dtype dtype;
  Values inputs;
  std::vector<double> exact;
};

// Returns the number of elements that are not the exact result rounded once.
size_t misrounded(const Data& data, const RankResult& result) {
  size_t wrong = 0;
  for (size_t i = 0; i < result.values.size(); ++i) {
    const double right = data.exact[result.first + i];
    if (class_of(right) == Class::kNan) continue;
    // Treats -0 and +0 as equal.
    const float rounded = number_of(data.dtype, bits_of(data.dtype, right));
    if (number_of(data.dtype, result.values[i]) != rounded) ++wrong;
  }
  return wrong;
}

std::string misclassed(const Data& data, const RankResult& result) {
  for (size_t i = 0; i < result.values.size(); ++i) {
    const double right = data.exact[result.first + i];
    const float got = number_of(data.dtype, result.values[i]);
    if (class_of(got) == class_of(number_of(data.dtype, bits_of(data.dtype, right)))) continue;
    return cat("element ", result.first + i, " is ", got, " and not ", right);
  }
  return "";
}

constexpr size_t kSmall = 600;
constexpr size_t kLarge = 24'000;

// Runs `how` with each algorithm and size on one layout, and calls check(data, result) on each rank.
void run_layout(const std::vector<int>& hosts, const ReductionCase& how, hvd_dtype dtype,
                const std::function<uint16_t(size_t rank, size_t i)>& value,
                const std::function<std::string(const Data&, const RankResult&)>& check) {
  CAPTURE(name_of_world(hosts));
  CAPTURE(std::string(name_of(dtype)));
  CAPTURE(how.op);
  CAPTURE(how.reduce_op);
  CAPTURE(how.averages);
  Data data{dtype, Values(hosts.size(), std::vector<uint16_t>(kLarge)), {}};
  for (size_t r = 0; r < hosts.size(); ++r) {
    for (size_t i = 0; i < kLarge; ++i) data.inputs[r][i] = value(r, i);
  }
  for (size_t i = 0; i < kLarge; ++i) data.exact.push_back(exact(how, dtype, data.inputs, i));
  World world(hosts);
  require_all_ok(world.run([&](Rank& rank) -> Status {
    for (const NamedTuning& algorithm : all_algorithms()) {
      for (const size_t count : {kSmall, kLarge}) {
        std::vector<uint16_t> input = data.inputs[static_cast<size_t>(rank.rank())];
        input.resize(count);
        RankResult result;
        HVD_RETURN_IF_ERROR(reduce(rank, how, dtype, algorithm.tuning, std::move(input), &result));
        const std::string wrong = check(data, result);
        if (!wrong.empty()) return internal_error(cat(algorithm.name, " of ", count, ": ", wrong));
      }
    }
    return {};
  }));
}

// Random numbers of many magnitudes, from a seed.
class Spread {
 public:
  explicit Spread(hvd_dtype dtype) {
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < kTable; ++i) {
      const double width = dtype == HVD_FLOAT16 ? 2.5 : 4.0;
      table_.push_back(bits_of(dtype, normal(random) * std::exp(normal(random) * width)));
    }
  }
  uint16_t operator()(size_t rank, size_t i) const { return table_[(rank * 65'537 + i) % kTable]; }

 private:
  static constexpr size_t kTable = 800'011;
  std::vector<uint16_t> table_;
};

constexpr ReductionCase kSum{HVD_ALLREDUCE, HVD_SUM};
constexpr ReductionCase kAverage{HVD_ALLREDUCE, HVD_SUM, true};
constexpr ReductionCase kDoubled{HVD_ALLREDUCE, HVD_SUM, true, 2};
constexpr ReductionCase kScatterDoubled{HVD_REDUCESCATTER, HVD_SUM, true, 2};
constexpr ReductionCase kProduct{HVD_ALLREDUCE, HVD_PRODUCT};
constexpr ReductionCase kScaled{HVD_ALLREDUCE, HVD_SUM, false, 4, 1.0 / 64};
constexpr ReductionCase kScatter{HVD_REDUCESCATTER, HVD_SUM};
constexpr ReductionCase kScatterAverage{HVD_REDUCESCATTER, HVD_SUM, true};
constexpr ReductionCase kScatterScaled{HVD_REDUCESCATTER, HVD_SUM, false, 4, 1.0 / 64};

}  // namespace

TEST_CASE("an average of float16 is finite on every layout where its inputs and result are") {
  for (const auto& hosts : layouts()) {
    for (const ReductionCase& how : {kAverage, kScatterAverage, kScaled, kScatterScaled}) {
      run_layout(
          hosts, how, HVD_FLOAT16,
          [&](size_t, size_t i) {
            if (!how.averages) return half_of_float(30000.0f);
            return half_of_float(i % 3 == 0 ? 65504.0f : 60000.0f);
          },
          misclassed);
    }
  }
}

TEST_CASE("an average of tiny float16 numbers does not vanish on any layout") {
  for (const auto& hosts : layouts()) {
    for (const ReductionCase& how : {kAverage, kScatterAverage}) {
      run_layout(
          hosts, how, HVD_FLOAT16,
          [](size_t, size_t i) { return static_cast<uint16_t>(i % 5 + 1); },
          [&](const Data& data, const RankResult& result) -> std::string {
            for (size_t i = 0; i < result.values.size(); ++i) {
              const float got = float_of_half(result.values[i]);
              const double right = data.exact[result.first + i];
              if (got > 0 && std::abs(got - right) <= 0x1p-24) continue;
              return cat("element ", result.first + i, " is ", got, " and not ", right);
            }
            return "";
          });
    }
  }
}

TEST_CASE("an average that a factor carries beyond float16 is infinite on every layout") {
  for (const auto& hosts : layouts()) {
    for (const ReductionCase& how : {kDoubled, kScatterDoubled}) {
      run_layout(
          hosts, how, HVD_FLOAT16,
          [](size_t rank, size_t i) {
            // Sums of hosts overflow in both directions, but the average does not.
            if (i % 2 == 1) return half_of_float(rank % 2 == 0 ? 60000.0f : -60000.0f);
            return half_of_float(32768.0f);
          },
          misclassed);
    }
  }
}

TEST_CASE("sums and products of half precision are rounded once on every layout") {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    const Spread spread(dtype);
    for (const auto& hosts : layouts()) {
      for (const ReductionCase& how : {kSum, kProduct, kScatter, kScaled}) {
        // float32 rounds as well: rarely to a midpoint, for products with each factor.
        const size_t most_of = how.reduce_op == HVD_PRODUCT ? 2000 : 10'000;
        run_layout(hosts, how, dtype, spread,
                   [&](const Data& data, const RankResult& result) -> std::string {
                     const size_t wrong = misrounded(data, result);
                     if (wrong <= result.values.size() / most_of + 1)
                       return misclassed(data, result);
                     return cat(wrong, " of ", result.values.size(), " elements are misrounded");
                   });
      }
    }
  }
}

TEST_CASE("an average of half precision errs by no more than a rounding per host and one") {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    const Spread spread(dtype);
    const double unit = dtype == HVD_FLOAT16 ? 0x1p-11 : 0x1p-8;
    const double least = dtype == HVD_FLOAT16 ? 0x1p-24 : 0x1p-133;
    for (const auto& hosts : layouts()) {
      for (const ReductionCase& how : {kAverage, kScatterAverage}) {
        run_layout(hosts, how, dtype, spread,
                   [&](const Data& data, const RankResult& result) -> std::string {
                     for (size_t i = 0; i < result.values.size(); ++i) {
                       const size_t at = result.first + i;
                       if (!std::isfinite(data.exact[at])) continue;
                       double total = 0;
                       for (const auto& input : data.inputs) {
                         total += std::abs(number_of(dtype, input[at]));
                       }
                       const double bound =
                           2.1 * unit * total / static_cast<double>(hosts.size()) + 4 * least;
                       const double error =
                           std::abs(number_of(dtype, result.values[i]) - data.exact[at]);
                       if (!(error <= bound)) return cat("element ", at, " errs by ", error);
                     }
                     return "";
                   });
      }
    }
  }
}

TEST_CASE("infinities and NaNs of half precision come out on every layout as they went in") {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    const uint16_t infinity = bits_of(dtype, std::numeric_limits<double>::infinity());
    const uint16_t nan = bits_of(dtype, NAN);
    for (const auto& hosts : layouts()) {
      for (const ReductionCase& how :
           {kSum, kAverage, kScatterAverage, ReductionCase{HVD_ALLREDUCE, HVD_MIN},
            ReductionCase{HVD_ALLREDUCE, HVD_MAX}, ReductionCase{HVD_REDUCESCATTER, HVD_MAX}}) {
        run_layout(
            hosts, how, dtype,
            [&](size_t rank, size_t i) -> uint16_t {
              if (i % 16 == rank) return infinity;
              if (i % 16 == rank + 8) return nan;
              return bits_of(dtype, static_cast<double>(i % 7) - 3);
            },
            misclassed);
      }
    }
  }
}

namespace {

// A NaN whose payload and sign depend on the rank.
void store_nan(hvd_dtype dtype, std::byte* at, int rank) {
  const auto put = [at](auto bits) { std::memcpy(at, &bits, sizeof bits); };
  const auto payload = static_cast<uint32_t>(rank) + 1;
  const uint32_t sign = rank % 2 == 0 ? 0 : 1;
  if (dtype == HVD_FLOAT16) put(static_cast<uint16_t>(0x7c00u | payload | sign << 15));
  if (dtype == HVD_BFLOAT16) put(static_cast<uint16_t>(0x7f80u | payload | sign << 15));
  if (dtype == HVD_FLOAT32) put(0x7fc00000u | payload << 3 | sign << 31);
  if (dtype == HVD_FLOAT64) put(0x7ff8000000000000u | payload | uint64_t{sign} << 63);
}

// Appends the bytes of an allreduce of NaNs, in place on every second rank.
Status reduce_nans(Rank& rank, hvd_dtype dtype, const ReductionCase& how, const hvd_tuning& tuning,
                   size_t count, std::vector<std::byte>* all) {
  const size_t width = size_of(dtype);
  std::vector<std::byte> input(count * width), output(count * width);
  for (size_t i = 0; i < count; ++i) store_nan(dtype, input.data() + i * width, rank.rank());
  std::vector<std::byte>& result = rank.rank() % 2 == 0 ? output : input;
  std::vector<hvd_batch_tensor> tensors{
      {input.data(), result.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
  hvd_batch batch = batch_of(HVD_ALLREDUCE, dtype, tensors);
  batch.tuning = &tuning;
  batch.reduce_op = how.reduce_op;
  batch.divisor = how.averages ? rank.size() : 0;
  HVD_RETURN_IF_ERROR(rank.run(batch));
  all->insert(all->end(), result.begin(), result.end());
  return {};
}

}  // namespace

TEST_CASE("NaNs with different payloads become one NaN, with the same bits on every rank") {
  for (const std::vector<int>& hosts :
       test::fewer<std::vector<int>>({{0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 0}, {0, 0, 0}}, 2)) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    std::mutex mutex;
    std::vector<std::vector<std::byte>> results;
    require_all_ok(world.run([&](Rank& rank) -> Status {
      std::vector<std::byte> all;
      for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64}) {
        for (const ReductionCase& how :
             {kSum, kAverage, kProduct, ReductionCase{HVD_ALLREDUCE, HVD_MIN},
              ReductionCase{HVD_ALLREDUCE, HVD_MAX}}) {
          for (const NamedTuning& algorithm : all_algorithms()) {
            for (const size_t count : {size_t{3}, size_t{3000}}) {
              HVD_RETURN_IF_ERROR(reduce_nans(rank, dtype, how, algorithm.tuning, count, &all));
            }
          }
        }
      }
      const std::lock_guard lock(mutex);
      results.push_back(std::move(all));
      return {};
    }));
    for (const auto& result : results) CHECK(result == results[0]);
  }
}
