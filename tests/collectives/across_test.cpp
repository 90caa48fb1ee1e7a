// Allreduce between hosts: every algorithm, over every layout of ranks, against a reference.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "collectives/checks.h"
#include "fewer.h"

using namespace hvd;
using namespace hvd::test;

namespace {

std::vector<std::vector<int>> worlds_of_hosts() {
  return test::fewer<std::vector<int>>({{0, 1, 2},
                                        {0, 1, 1, 2, 0, 2},
                                        {0, 1},
                                        {0, 1, 2, 3, 4},
                                        {0, 1, 2, 3, 4, 5, 6, 7},
                                        {0, 0, 1, 1},
                                        {0, 0, 0, 1, 2, 2}},
                                       2);
}

// Returns small integers, which are exact in every type.
template <typename T>
T value_of(int rank, size_t i) {
  return static_cast<T>((static_cast<size_t>(rank) * 7 + i * 3 + i / 11) % 4);
}

template <typename T>
Status check_sum(Rank& rank, hvd_dtype dtype, const hvd_tuning& tuning,
                 const std::vector<size_t>& counts, bool in_place) {
  std::vector<std::vector<T>> inputs, outputs;
  std::vector<hvd_batch_tensor> tensors;
  for (const size_t count : counts) {
    inputs.emplace_back(count);
    for (size_t i = 0; i < count; ++i) inputs.back()[i] = value_of<T>(rank.rank(), i);
    outputs.emplace_back(count);
  }
  for (size_t t = 0; t < counts.size(); ++t) {
    tensors.push_back({inputs[t].data(), in_place ? inputs[t].data() : outputs[t].data(),
                       static_cast<int64_t>(counts[t]), 1, nullptr, nullptr});
  }
  hvd_batch batch = batch_of(HVD_ALLREDUCE, dtype, tensors);
  batch.tuning = &tuning;
  HVD_RETURN_IF_ERROR(rank.run(batch));
  for (size_t t = 0; t < counts.size(); ++t) {
    const T* output = static_cast<const T*>(tensors[t].output);
    for (size_t i = 0; i < counts[t]; ++i) {
      T expected = 0;
      for (int r = 0; r < rank.size(); ++r) expected = static_cast<T>(expected + value_of<T>(r, i));
      if (output[i] != expected) {
        return internal_error(cat("tensor ", t, " of ", counts[t], " element ", i, ": ",
                                  static_cast<double>(output[i]), " and not ",
                                  static_cast<double>(expected)));
      }
    }
  }
  return {};
}

float random_value(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(state) / 4e9f;
}

}  // namespace

TEST_CASE("every algorithm between hosts gives every rank the sum") {
  for (const auto& hosts : worlds_of_hosts()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (NamedTuning algorithm : all_algorithms()) {
        for (const int32_t streams : {1, 3}) {
          algorithm.tuning.streams = streams;
          for (const size_t count : {size_t{1}, size_t{17}, size_t{1030}, size_t{40'007}}) {
            const auto checked = [&](Status status) {
              return status.with_context(cat(algorithm.name, " over ", streams, " streams"));
            };
            HVD_RETURN_IF_ERROR(
                checked(check_sum<float>(rank, HVD_FLOAT32, algorithm.tuning, {count}, true)));
            HVD_RETURN_IF_ERROR(
                checked(check_sum<uint8_t>(rank, HVD_UINT8, algorithm.tuning, {count}, false)));
          }
          HVD_RETURN_IF_ERROR(check_sum<int64_t>(rank, HVD_INT64, algorithm.tuning,
                                                 {3, 0, 1024, 5, 2048, 700, 1}, false));
        }
      }
      return {};
    }));
  }
}

TEST_CASE("large sums over several streams arrive whole") {
  for (const auto& hosts : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 2, 3, 4}}) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (NamedTuning algorithm : all_algorithms()) {
        algorithm.tuning.streams = 2;
        algorithm.tuning.chunk = 256 * 1024;
        HVD_RETURN_IF_ERROR(
            check_sum<float>(rank, HVD_FLOAT32, algorithm.tuning, {700'001, 3}, true));
      }
      return {};
    }));
  }
}

TEST_CASE("a leader alone may drive the streams of its host") {
  World world({0, 0, 0, 1, 1, 2, 2});
  require_all_ok(world.run([](Rank& rank) -> Status {
    for (NamedTuning algorithm : all_algorithms()) {
      algorithm.tuning.drivers = 1;
      HVD_RETURN_IF_ERROR(check_sum<double>(rank, HVD_FLOAT64, algorithm.tuning, {30'000}, true));
    }
    return {};
  }));
}

TEST_CASE("scales apply once in every algorithm, and a rank without tensors changes nothing") {
  for (const auto& hosts : worlds_of_hosts()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const NamedTuning& algorithm : all_algorithms()) {
        for (const size_t count : {size_t{2}, size_t{5000}}) {
          std::vector<int32_t> values(count, rank.rank() == 1 ? 99 : 7);
          std::vector<hvd_batch_tensor> tensors{{rank.rank() == 1 ? nullptr : values.data(),
                                                 rank.rank() == 1 ? nullptr : values.data(),
                                                 static_cast<int64_t>(count), 1, nullptr, nullptr}};
          hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_INT32, tensors);
          batch.tuning = &algorithm.tuning;
          batch.prescale = 3;
          batch.postscale = 0.5;
          HVD_RETURN_IF_ERROR(rank.run(batch));
          const int expected = rank.rank() == 1 ? 99 : (rank.size() - 1) * 21 / 2;
          if (values.front() != expected || values.back() != expected) {
            return internal_error(cat(algorithm.name, ": ", values.back(), " and not ", expected));
          }
        }
      }
      return {};
    }));
  }
}

TEST_CASE("in every algorithm all ranks get the same bits") {
  for (const auto& hosts : worlds_of_hosts()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    std::mutex mutex;
    std::vector<std::vector<float>> results;
    require_all_ok(world.run([&](Rank& rank) -> Status {
      std::vector<float> all;
      for (const NamedTuning& algorithm : all_algorithms()) {
        std::vector<float> values(7001);
        uint32_t state = 12345u + static_cast<uint32_t>(rank.rank());
        for (float& value : values) value = random_value(state) - 0.5f;
        std::vector<hvd_batch_tensor> tensors{
            {values.data(), values.data(), 7001, 1, nullptr, nullptr}};
        hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
        batch.tuning = &algorithm.tuning;
        HVD_RETURN_IF_ERROR(rank.run(batch));
        all.insert(all.end(), values.begin(), values.end());
      }
      const std::lock_guard lock(mutex);
      results.push_back(std::move(all));
      return {};
    }));
    for (const auto& result : results) {
      CHECK(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("one-shot and two-shot give an element the same sum, whatever its batch is") {
  // Uses the tuning of HOROVOD_REPRODUCIBLE.
  hvd_tuning tuning = tuning_with(0, -1, 0, std::numeric_limits<int32_t>::max());
  for (const auto& hosts : {std::vector<int>{0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4, 5}}) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([&](Rank& rank) -> Status {
      std::vector<float> values(60'000);
      uint32_t state = 99u + static_cast<uint32_t>(rank.rank());
      for (float& value : values) value = std::exp(20 * random_value(state)) - 1e4f;
      const auto sum_of_parts = [&](size_t part, std::vector<float>* sums) -> Status {
        *sums = values;
        for (size_t first = 0; first < sums->size(); first += part) {
          const size_t count = std::min(part, sums->size() - first);
          std::vector<hvd_batch_tensor> tensors{{sums->data() + first, sums->data() + first,
                                                 static_cast<int64_t>(count), 1, nullptr, nullptr}};
          hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
          batch.tuning = &tuning;
          HVD_RETURN_IF_ERROR(rank.run(batch));
        }
        return {};
      };
      std::vector<float> whole, parts;
      HVD_RETURN_IF_ERROR(sum_of_parts(60'000, &whole));
      for (const size_t part : {size_t{700}, size_t{3900}, size_t{17'000}}) {
        HVD_RETURN_IF_ERROR(sum_of_parts(part, &parts));
        if (whole != parts) return internal_error(cat("parts of ", part, " differ"));
      }
      return {};
    }));
  }
}

TEST_CASE("the error of a sum in half precision does not grow with the ranks, on hosts or in one") {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    const auto to_bits = [dtype](float value) {
      return dtype == HVD_FLOAT16 ? half_of_float(value) : bfloat_of_float(value);
    };
    const auto to_float = [dtype](uint16_t bits) {
      return dtype == HVD_FLOAT16 ? float_of_half(bits) : float_of_bfloat(bits);
    };
    const auto apart = [](int count) {
      std::vector<int> hosts(static_cast<size_t>(count));
      std::iota(hosts.begin(), hosts.end(), 0);
      return hosts;
    };
    const auto together = [](size_t count) { return std::vector<int>(count, 0); };
    for (const std::vector<int>& hosts :
         {apart(2), apart(5), apart(16), together(2), together(5), together(16)}) {
      CAPTURE(static_cast<int>(dtype));
      CAPTURE(name_of_world(hosts));
      // These counts exceed a small payload in shared memory.
      const size_t count = hosts.front() == hosts.back() ? 3000 : 600;
      std::vector<std::vector<uint16_t>> inputs;
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        uint32_t state = 77u + static_cast<uint32_t>(rank);
        inputs.emplace_back();
        for (size_t i = 0; i < count; ++i) inputs.back().push_back(to_bits(random_value(state)));
      }
      // Expects each exact sum rounded once, or pairwise sums, each rounded.
      std::vector<uint16_t> once;
      double pairwise_error = 0;
      for (size_t i = 0; i < count; ++i) {
        double exact = 0;
        std::vector<uint16_t> terms;
        for (const auto& input : inputs) {
          exact += to_float(input[i]);
          terms.push_back(input[i]);
        }
        while (terms.size() > 1) {
          std::vector<uint16_t> next;
          for (size_t t = 0; t + 1 < terms.size(); t += 2) {
            next.push_back(to_bits(to_float(terms[t]) + to_float(terms[t + 1])));
          }
          if (terms.size() % 2 == 1) next.push_back(terms.back());
          terms = next;
        }
        once.push_back(to_bits(static_cast<float>(exact)));
        pairwise_error = std::max(pairwise_error, std::abs(exact - to_float(terms[0])));
      }
      World world(hosts);
      require_all_ok(world.run([&](Rank& rank) -> Status {
        for (const NamedTuning& algorithm : all_algorithms()) {
          auto values = inputs[static_cast<size_t>(rank.rank())];
          std::vector<hvd_batch_tensor> tensors{
              {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
          hvd_batch batch = batch_of(HVD_ALLREDUCE, dtype, tensors);
          batch.tuning = &algorithm.tuning;
          HVD_RETURN_IF_ERROR(rank.run(batch));
          // float32 represents these sums nearly exactly, so only one rounding remains.
          for (size_t i = 0; i < count; ++i) {
            const int apart = std::abs(int{values[i]} - int{once[i]});
            if (apart > 1) return internal_error(cat(algorithm.name, ": element ", i, " is off"));
          }
          double error = 0;
          for (size_t i = 0; i < count; ++i) {
            double exact = 0;
            for (const auto& input : inputs) exact += to_float(input[i]);
            error = std::max(error, std::abs(exact - to_float(values[i])));
          }
          if (error > pairwise_error) {
            return internal_error(cat(algorithm.name, ": ", error, " pairwise ", pairwise_error));
          }
        }
        return {};
      }));
    }
  }
}
