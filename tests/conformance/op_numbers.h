// Factors, NaN and float16 of an op plugin, on layouts of ranks over hosts that could give other results.
#pragma once

#include <cmath>
#include <iterator>

#include "conformance/op_case.h"

namespace hvd::test {

inline void check_factors(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    const int size = set.size();
    for (const int op : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      const int64_t kept = op == HVD_ALLREDUCE ? 2 * size : 2;
      OpCase scaled(op, HVD_FLOAT32);
      scaled.batch.prescale = 0.5;
      scaled.batch.postscale = 4;
      scaled.add(2 * size, 1, kept, [&](size_t) { return rank.rank() + 1; });
      if (set.claims(scaled)) {
        CHECK(set.run(scaled));
        check_outcome(scaled, 0, [&](size_t) { return size * (size + 1); });
      }
      OpCase average(op, HVD_INT32);
      average.batch.postscale = 1.0 / size;
      average.batch.divisor = size;
      int sum = 0;
      for (int r = 0; r < size; ++r) sum += r % 2 == 0 ? -7 : -4;
      average.add(2 * size, 1, kept, [&](size_t) { return rank.rank() % 2 == 0 ? -7 : -4; });
      if (!set.claims(average)) continue;
      CHECK(set.run(average));
      check_outcome(average, 0, [&](size_t) { return sum / size; });
    }
  });
}

// Returns a NaN with a different payload and sign for each rank.
inline double nan_of(int rank) {
  const uint64_t payload = (static_cast<uint64_t>(rank) + 1) << 42;
  return __builtin_bit_cast(double,
                            0x7ff8000000000000u | payload | static_cast<uint64_t>(rank % 2) << 63);
}

// A NaN on one rank or on all ranks is the result of every reduction, on every rank.
inline void check_nans(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    const auto ranks = static_cast<size_t>(set.size());
    // Rank r has a NaN at every element i with i % (size + 1) == r, and all ranks have one at every 11th.
    const auto is_from = [&](size_t i, size_t index) {
      return i % 11 == 0 || i % (ranks + 1) == index;
    };
    for (const hvd_dtype dtype : {HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT64}) {
      for (const int op : kReductions) {
        for (const int64_t count : {7, 5000, 70'001}) {
          OpCase work(HVD_ALLREDUCE, dtype);
          work.batch.reduce_op = op;
          if (!set.claims(work)) continue;
          work.add(count, 1, count, [&](size_t i) {
            return is_from(i, static_cast<size_t>(set.index())) ? nan_of(set.index()) : 1.0;
          });
          if (count == 5000) work.in_place();
          CHECK(set.run(work));
          const std::vector<double> values = work.outcome(0);
          size_t wrong = 0;
          for (size_t i = 0; i < values.size(); ++i) {
            const bool right = i % 11 == 0 || i % (ranks + 1) < ranks;
            if (std::isnan(values[i]) != right) ++wrong;
          }
          INFO("reduction ", op, " of ", name_of(dtype), ", ", count, " elements");
          CHECK(wrong == 0);
        }
      }
    }
  });
}

// A float16 average neither overflows nor vanishes: the average of equal numbers is this number.
inline void check_half_averages(const PluginLinks& links, const std::vector<int32_t>& machines) {
  constexpr double kValues[] = {65504, -60000, 0x1p-24, 3 * 0x1p-24, -0x1p-14, 0.1, 1000};
  run_plugin_world(links, machines, [&](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    // NCCL divides the inputs, and rounds at each step: three thirds of 65504 are infinite.
    const bool is_exact = op_memory().device == HVD_CPU;
    const auto value = [&](size_t i) {
      const double wanted = kValues[i % std::size(kValues)];
      return static_cast<double>(Half(is_exact || wanted < 65000 ? wanted : 60000));
    };
    for (const int op : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      for (const int64_t rows : {set.size(), 6000 * set.size()}) {
        OpCase work(op, HVD_FLOAT16);
        work.batch.postscale = 1.0 / set.size();
        work.batch.divisor = set.size();
        if (!set.claims(work)) continue;
        const bool scatters = op == HVD_REDUCESCATTER;
        const size_t first =
            scatters ? static_cast<size_t>(rows_kept(rows, set.index(), set.size()).first) : 0;
        work.add(rows, 1, scatters ? rows / set.size() : rows, value);
        CHECK(set.run(work));
        const std::vector<double> values = work.outcome(0);
        for (size_t i = 0; i < values.size(); ++i) {
          const double right = value(first + i);
          const double tolerance = is_exact ? 0 : std::abs(right) / 512 + 0x1p-22;
          CHECK(std::abs(values[i] - right) <= tolerance);
        }
      }
    }
  });
}

inline std::vector<std::vector<int32_t>> numeric_worlds() {
  return fewer<std::vector<int32_t>>(
      {{0, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}}, 2);
}

}  // namespace hvd::test
