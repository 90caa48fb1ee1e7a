// Every collective, over every layout of ranks, against a reference.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/half.h"
#include "collectives/checks.h"
#include "conformance/elements.h"
#include "fewer.h"

using namespace hvd;
using namespace hvd::test;

namespace {

struct Tensors {
  std::vector<Bytes> inputs, outputs;
  std::vector<hvd_batch_tensor> entries;
};

// Tensors of these counts, filled for a rank.
Tensors tensors_of(hvd_dtype dtype, int op, int rank, const std::vector<size_t>& counts,
                   bool in_place) {
  Tensors made;
  const size_t size = size_of(dtype);
  for (size_t t = 0; t < counts.size(); ++t) {
    Bytes input(counts[t] * size + 1);
    for (size_t i = 0; i < counts[t]; ++i) {
      store(dtype, input.data() + i * size, element(dtype, op, rank, i + t));
    }
    made.inputs.push_back(std::move(input));
    made.outputs.emplace_back(counts[t] * size + 1);
  }
  for (size_t t = 0; t < counts.size(); ++t) {
    void* output = in_place ? made.inputs[t].data() : made.outputs[t].data();
    made.entries.push_back(
        {made.inputs[t].data(), output, static_cast<int64_t>(counts[t]), 1, nullptr, nullptr});
  }
  return made;
}

std::string check_allreduce(Rank& rank, hvd_dtype dtype, int op, const std::vector<size_t>& counts,
                            bool in_place) {
  Tensors tensors = tensors_of(dtype, op, rank.rank(), counts, in_place);
  hvd_batch batch = batch_of(HVD_ALLREDUCE, dtype, tensors.entries);
  batch.reduce_op = op;
  const Status ran = rank.run(batch);
  if (!ran.ok()) return ran.message();
  const size_t size = size_of(dtype);
  for (size_t t = 0; t < counts.size(); ++t) {
    const auto* output = static_cast<const std::byte*>(tensors.entries[t].output);
    for (size_t i = 0; i < counts[t]; ++i) {
      double expected = element(dtype, op, 0, i + t);
      for (int r = 1; r < rank.size(); ++r) {
        expected = combine(dtype, op, expected, element(dtype, op, r, i + t));
      }
      const double got = load(dtype, output + i * size);
      if (got != expected) {
        return cat(name_of(dtype), " ", name_of(static_cast<hvd_reduce_op>(op)), " tensor ", t,
                   " of ", counts[t], " element ", i, ": ", got, " and not ", expected);
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("an allreduce of every type, operation and size matches the oracle") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      const size_t chunk = collectives::SubRegion::chunk_for(1);
      for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
        for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
          for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{4099}}) {
            const std::string complaint =
                check_allreduce(rank, static_cast<hvd_dtype>(dtype), op, {count}, count % 2 == 0);
            if (!complaint.empty()) return as_status(complaint);
          }
        }
      }
      for (const hvd_dtype dtype : {HVD_FLOAT32, HVD_FLOAT16, HVD_INT64}) {
        const size_t per_chunk = chunk / size_of(dtype);
        for (const size_t count : fewer<size_t>(
                 {per_chunk + 1, per_chunk - 1, per_chunk, 2 * per_chunk, 5 * per_chunk + 13}, 2)) {
          const std::string complaint = check_allreduce(rank, dtype, HVD_SUM, {count}, true);
          if (!complaint.empty()) return as_status(complaint);
        }
      }
      return {};
    }));
  }
}

TEST_CASE("ten megabytes and fused batches arrive whole") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const auto& counts : fewer<std::vector<size_t>>(
               {{3, 0, 17, 1}, {1, 100'000, 0, 5, 70'000, 1}, {65536, 65536, 1}, {2'500'000}}, 2)) {
        const std::string complaint = check_allreduce(rank, HVD_FLOAT32, HVD_SUM, counts, false);
        if (!complaint.empty()) return as_status(complaint);
      }
      return {};
    }));
  }
}

TEST_CASE("a message longer than the caches arrives whole, however its tensors lie") {
  World world({0, 0});
  require_all_ok(world.run([](Rank& rank) -> Status {
    const std::vector<size_t> counts{1, 17'000'003, 62, 17'000'000};
    return as_status(check_allreduce(rank, HVD_UINT8, HVD_SUM, counts, false));
  }));
}

namespace {

template <typename T>
Status check_average(Rank& rank, hvd_dtype dtype, size_t count, bool has_joined,
                     T (*of)(double sum, double size)) {
  const int last = rank.size() - 1;
  std::vector<T> values(count);
  const auto value = [](int from, size_t i) {
    return static_cast<double>((i * 7 + 1) % 97 + from);
  };
  for (size_t i = 0; i < count; ++i) values[i] = of(value(rank.rank(), i), 1);
  const bool joins = has_joined && rank.rank() == last;
  std::vector<hvd_batch_tensor> tensors{{joins ? nullptr : values.data(),
                                         joins ? nullptr : values.data(),
                                         static_cast<int64_t>(count), 1, nullptr, nullptr}};
  hvd_batch batch = batch_of(HVD_ALLREDUCE, dtype, tensors);
  batch.postscale = 1.0 / rank.size();
  batch.divisor = rank.size();
  HVD_RETURN_IF_ERROR(rank.run(batch));
  for (size_t i = 0; i < count && !joins; ++i) {
    double sum = 0;
    for (int r = 0; r < rank.size() - (has_joined ? 1 : 0); ++r) sum += value(r, i);
    // A host with several ranks rounds its float16 quotients before it sends them.
    const bool rounds_twice = dtype == HVD_FLOAT16 && rank.group().host_count() > 1 &&
                              rank.group().size() > rank.group().host_count();
    const T right = of(sum, rank.size());
    const bool is_near = std::abs(static_cast<double>(values[i]) - static_cast<double>(right)) <= 1;
    if (values[i] != right && !(rounds_twice && is_near)) {
      return internal_error(cat("average ", i, " of ", count, ", type ", static_cast<int>(dtype)));
    }
  }
  return {};
}

}  // namespace

TEST_CASE("an average is the quotient to the last bit, also with a rank that has joined") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const size_t count : {size_t{5}, size_t{5000}, size_t{40000}}) {
        for (const bool has_joined : {false, true}) {
          if (has_joined && rank.size() == 1) continue;
          HVD_RETURN_IF_ERROR(
              check_average<double>(rank, HVD_FLOAT64, count, has_joined,
                                    [](double sum, double size) { return sum / size; }));
          HVD_RETURN_IF_ERROR(check_average<float>(
              rank, HVD_FLOAT32, count, has_joined, [](double sum, double size) {
                return static_cast<float>(sum) / static_cast<float>(size);
              }));
          HVD_RETURN_IF_ERROR(check_average<uint16_t>(
              rank, HVD_FLOAT16, count, has_joined, [](double sum, double size) {
                return half_of_float(static_cast<float>(sum) / static_cast<float>(size));
              }));
        }
      }
      return {};
    }));
  }
}

TEST_CASE("scales are applied before and after, and an integer average truncates toward zero") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      const auto size = static_cast<double>(rank.size());
      for (const size_t count : {size_t{5}, size_t{5000}}) {
        std::vector<float> values(count, static_cast<float>(rank.rank() + 1));
        std::vector<int32_t> whole(count, rank.rank() % 2 == 0 ? -7 : -4);
        std::vector<hvd_batch_tensor> tensors{
            {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
        hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
        batch.prescale = 0.5;
        batch.postscale = 4;
        HVD_RETURN_IF_ERROR(rank.run(batch));
        const auto expected = static_cast<float>(size * (size + 1));
        if (values.front() != expected || values.back() != expected) {
          return internal_error(cat("scaled sum is ", values.front(), " and not ", expected));
        }
        tensors[0].input = tensors[0].output = whole.data();
        batch = batch_of(HVD_ALLREDUCE, HVD_INT32, tensors);
        batch.postscale = 1.0 / size;
        batch.divisor = rank.size();
        HVD_RETURN_IF_ERROR(rank.run(batch));
        int sum = 0;
        for (int r = 0; r < rank.size(); ++r) sum += r % 2 == 0 ? -7 : -4;
        if (whole.front() != sum / rank.size() || whole.back() != sum / rank.size()) {
          return internal_error(cat("average is ", whole.front()));
        }
      }
      return {};
    }));
  }
}

TEST_CASE("a rank without the tensor contributes what changes nothing") {
  World world({0, 0, 1});
  require_all_ok(world.run([](Rank& rank) -> Status {
    for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
      std::vector<double> values(3000, 3);
      const bool joined = rank.rank() == 1;
      std::vector<hvd_batch_tensor> tensors{{joined ? nullptr : values.data(),
                                             joined ? nullptr : values.data(), 3000, 1, nullptr,
                                             nullptr}};
      hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT64, tensors);
      batch.reduce_op = op;
      HVD_RETURN_IF_ERROR(rank.run(batch));
      const double expected = op == HVD_SUM ? 6 : op == HVD_PRODUCT ? 9 : 3;
      if (!joined && values[2999] != expected) return internal_error(cat(op, ": ", values[2999]));
    }
    return {};
  }));
}

TEST_CASE("sums of random floats have the same bits on every rank") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    std::mutex mutex;
    std::vector<std::vector<uint32_t>> results;
    require_all_ok(world.run([&](Rank& rank) -> Status {
      std::vector<uint32_t> all;
      for (const size_t count : {size_t{11}, size_t{200'001}}) {
        std::vector<float> values(count);
        uint32_t state = 12345u + static_cast<uint32_t>(rank.rank());
        for (float& value : values) {
          state = state * 1664525u + 1013904223u;
          value = static_cast<float>(state) / 1e9f - 2.0f;
        }
        std::vector<hvd_batch_tensor> tensors{
            {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
        const hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
        HVD_RETURN_IF_ERROR(rank.run(batch));
        for (const float value : values) all.push_back(bits_of_float(value));
      }
      const std::lock_guard lock(mutex);
      results.push_back(std::move(all));
      return {};
    }));
    for (const auto& result : results) CHECK(result == results.front());
  }
}

TEST_CASE("an allgather concatenates rows of any number in rank order") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const int64_t scale : {1, 300, 50'000}) {
        std::vector<std::vector<int64_t>> rows(2);
        for (int r = 0; r < rank.size(); ++r) {
          rows[0].push_back(scale * (r % 3));
          rows[1].push_back(r + 1);
        }
        std::vector<std::vector<int32_t>> inputs, outputs;
        std::vector<hvd_batch_tensor> tensors;
        for (size_t t = 0; t < 2; ++t) {
          const auto mine = static_cast<size_t>(rows[t][static_cast<size_t>(rank.rank())] * 2);
          int64_t total = 0;
          for (const int64_t count : rows[t]) total += count;
          inputs.emplace_back(mine, rank.rank() + 100 * static_cast<int>(t));
          outputs.emplace_back(static_cast<size_t>(total * 2), -1);
        }
        for (size_t t = 0; t < 2; ++t) {
          tensors.push_back({inputs[t].data(), outputs[t].data(),
                             static_cast<int64_t>(inputs[t].size()), 2, rows[t].data(), nullptr});
        }
        const hvd_batch batch = batch_of(HVD_ALLGATHER, HVD_INT32, tensors);
        HVD_RETURN_IF_ERROR(rank.run(batch));
        for (size_t t = 0; t < 2; ++t) {
          size_t at = 0;
          for (int r = 0; r < rank.size(); ++r) {
            for (int64_t i = 0; i < rows[t][static_cast<size_t>(r)] * 2; ++i, ++at) {
              if (outputs[t][at] != r + 100 * static_cast<int>(t)) {
                return internal_error(cat("element ", at, " is ", outputs[t][at]));
              }
            }
          }
        }
      }
      return {};
    }));
  }
}

TEST_CASE("a broadcast from every root reaches every rank") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (int root = 0; root < rank.size(); ++root) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{300'007}}) {
          std::vector<int16_t> input(count, static_cast<int16_t>(rank.rank() + 5));
          std::vector<int16_t> output(count, -1);
          std::vector<hvd_batch_tensor> tensors{
              {input.data(), output.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
          hvd_batch batch = batch_of(HVD_BROADCAST, HVD_INT16, tensors);
          batch.root = root;
          HVD_RETURN_IF_ERROR(rank.run(batch));
          for (const int16_t value : output) {
            if (value != root + 5) return internal_error(cat("got ", value, " from ", root));
          }
        }
      }
      return {};
    }));
  }
}

TEST_CASE("an alltoall gives each rank its rows from each") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const int64_t scale : {0, 1, 20'000}) {
        std::vector<int64_t> to, from;
        std::vector<int32_t> input;
        size_t incoming = 0;
        for (int r = 0; r < rank.size(); ++r) {
          to.push_back(scale * ((rank.rank() + r) % 3));
          from.push_back(scale * ((rank.rank() + r) % 3));
          input.insert(input.end(), static_cast<size_t>(to.back()), rank.rank() * 100 + r);
          incoming += static_cast<size_t>(from.back());
        }
        std::vector<int32_t> output(incoming, -1);
        std::vector<hvd_batch_tensor> tensors{{input.data(), output.data(),
                                               static_cast<int64_t>(input.size()), 1, to.data(),
                                               from.data()}};
        const hvd_batch batch = batch_of(HVD_ALLTOALL, HVD_INT32, tensors);
        HVD_RETURN_IF_ERROR(rank.run(batch));
        size_t at = 0;
        for (int r = 0; r < rank.size(); ++r) {
          for (int64_t i = 0; i < from[static_cast<size_t>(r)]; ++i, ++at) {
            if (output[at] != r * 100 + rank.rank()) {
              return internal_error(cat("element ", at, " is ", output[at]));
            }
          }
        }
      }
      return {};
    }));
  }
}

TEST_CASE("operations of all kinds and sizes follow each other in any order") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      uint32_t state = 99;
      for (int round = 0; round < 300; ++round) {
        state = state * 1664525u + 1013904223u;
        const size_t count = (state >> 8) % 3 == 0 ? (state >> 10) % 300'000 : (state >> 10) % 900;
        const uint32_t kind = (state >> 4) % 4;
        std::vector<float> values(count, 1);
        std::vector<hvd_batch_tensor> tensors{
            {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
        if (kind <= 1) {
          HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors)));
          if (count > 0 && values.back() != static_cast<float>(rank.size())) {
            return internal_error(cat("round ", round, ": ", values.back()));
          }
        } else if (kind == 2) {
          hvd_batch batch = batch_of(HVD_BROADCAST, HVD_FLOAT32, tensors);
          batch.root = static_cast<int>(state >> 16) % rank.size();
          if (rank.rank() == batch.root && count > 0) values.back() = static_cast<float>(round);
          HVD_RETURN_IF_ERROR(rank.run(batch));
          if (count > 0 && values.back() != static_cast<float>(round)) {
            return internal_error(cat("round ", round, ": broadcast ", values.back()));
          }
        } else {
          tensors.clear();
          HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_BARRIER, HVD_UINT8, tensors)));
        }
      }
      return {};
    }));
  }
}

TEST_CASE("groups of some of the ranks work beside the group of all") {
  World world({0, 0, 1, 1, 0});
  require_all_ok(world.run([](Rank& rank) -> Status {
    for (uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
      const std::vector<std::vector<int32_t>> sets{{0, 1, 4}, {1, 2, 3}, {2, 4}};
      for (size_t s = 0; s < sets.size(); ++s) {
        const auto& members = sets[s];
        if (std::find(members.begin(), members.end(), rank.rank()) == members.end()) continue;
        Group group(rank.mesh(), static_cast<int32_t>(s + 1), members, incarnation);
        for (const size_t count : {size_t{3}, size_t{100'000}}) {
          std::vector<int32_t> values(count, rank.rank());
          std::vector<hvd_batch_tensor> tensors{
              {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
          HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_ALLREDUCE, HVD_INT32, tensors), group));
          int32_t expected = 0;
          for (const int32_t member : members) expected += member;
          if (values.back() != expected) return internal_error(cat("set ", s, ": ", values[0]));
        }
      }
      std::vector<hvd_batch_tensor> none;
      HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_BARRIER, HVD_UINT8, none)));
    }
    return {};
  }));
}
