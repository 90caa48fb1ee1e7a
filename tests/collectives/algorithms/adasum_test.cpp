// Adasum against a float64 reference, over 1 to 9 ranks on one host and on several.
#include <doctest/doctest.h>

#include <cmath>

#include "base/dtype.h"
#include "collectives/checks.h"
#include "collectives/kernels/reduce_kernels.h"
#include "conformance/elements.h"
#include "fewer.h"

using namespace hvd;
using namespace hvd::test;

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector pair_of(const Vector& a, const Vector& b) {
  const double tiny = std::sqrt(2.2250738585072014e-308);
  const double of_a = dot(a, a) < tiny ? 1 : 1 - dot(a, b) / (2 * dot(a, a));
  const double of_b = dot(b, b) < tiny ? 1 : 1 - dot(a, b) / (2 * dot(b, b));
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

// The definition: rank r and rank r + distance, for distances 1, 2, 4, ...; a rank without a
// partner waits for the next level.
Vector adasum_of(std::vector<Vector> vectors) {
  for (size_t distance = 1; distance < vectors.size(); distance *= 2) {
    for (size_t r = 0; r + distance < vectors.size(); r += 2 * distance) {
      vectors[r] = pair_of(vectors[r], vectors[r + distance]);
    }
  }
  return vectors[0];
}

// Tensors of these counts; some are equal on all ranks, some differ, the second is zero on rank 1.
double value(int rank, size_t tensor, size_t i) {
  if (tensor == 1 && rank == 1) return 0;
  return std::sin(static_cast<double>(i * (tensor + 1)) + 0.7 * rank) + 0.25 * (rank % 3);
}

struct Work {
  Work(hvd_dtype type, int rank, const std::vector<size_t>& counts) : dtype(type) {
    for (size_t t = 0; t < counts.size(); ++t) {
      inputs.emplace_back(counts[t] * size_of(type));
      outputs.emplace_back(counts[t] * size_of(type));
      for (size_t i = 0; i < counts[t]; ++i) {
        store(type, inputs[t].data() + i * size_of(type), value(rank, t, i));
      }
    }
    for (size_t t = 0; t < counts.size(); ++t) {
      tensors.push_back({inputs[t].data(), outputs[t].data(), static_cast<int64_t>(counts[t]), 1,
                         nullptr, nullptr});
    }
  }
  hvd_batch batch() {
    hvd_batch made = batch_of(HVD_ALLREDUCE, dtype, tensors);
    made.reduce_op = HVD_ADASUM;
    return made;
  }
  Vector input(size_t tensor) const { return read(inputs[tensor]); }
  Vector output(size_t tensor) const { return read(outputs[tensor]); }
  Vector read(const Bytes& bytes) const {
    Vector values(bytes.size() / size_of(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = load(dtype, bytes.data() + i * size_of(dtype));
    }
    return values;
  }

  hvd_dtype dtype;
  std::vector<Bytes> inputs, outputs;
  std::vector<hvd_batch_tensor> tensors;
};

double precision_of(hvd_dtype dtype) {
  if (dtype == HVD_FLOAT64) return 1e-13;
  if (dtype == HVD_FLOAT32) return 1e-7;
  return dtype == HVD_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

std::string check(Rank& rank, hvd_dtype dtype, const std::vector<size_t>& counts, double factor) {
  Work work(dtype, rank.rank(), counts);
  hvd_batch batch = work.batch();
  batch.prescale = factor;
  batch.postscale = factor;
  if (const Status ran = rank.run(batch); !ran.ok()) return ran.message();
  for (size_t t = 0; t < counts.size(); ++t) {
    std::vector<Vector> vectors;
    for (int r = 0; r < rank.size(); ++r) vectors.push_back(Work(dtype, r, counts).input(t));
    const Vector right = adasum_of(std::move(vectors));
    const Vector got = work.output(t);
    const double length = std::sqrt(dot(right, right));
    for (size_t i = 0; i < right.size(); ++i) {
      const double scaled = factor * factor * right[i];
      const double allowed = precision_of(dtype) * (std::abs(scaled) + 1e-3 * length);
      if (std::abs(got[i] - scaled) > allowed) {
        return cat(name_of(dtype), " tensor ", t, " of ", counts[t], " element ", i, ": ", got[i],
                   " and not ", scaled);
      }
    }
  }
  return {};
}

std::vector<std::vector<int>> worlds() {
  std::vector<std::vector<int>> all{{0, 1},
                                    {0, 1, 2},
                                    {0, 0, 1, 1},
                                    {0, 1, 0, 1, 0},
                                    {0, 0, 0, 1, 2, 2},
                                    {0, 1, 2, 3, 4, 5, 6},
                                    {0, 0, 0, 0, 1, 1, 1, 2, 2}};
  for (int size = 1; size <= 9; ++size) all.emplace_back(static_cast<size_t>(size), 0);
  return test::fewer(std::move(all), 5);
}

// Runs Adasum on one tensor, which each rank fills with its own values.
Status run_adasum(Rank& rank, std::vector<float>& values) {
  std::vector<hvd_batch_tensor> tensors{
      {values.data(), values.data(), static_cast<int64_t>(values.size()), 1, nullptr, nullptr}};
  hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
  batch.reduce_op = HVD_ADASUM;
  return rank.run(batch);
}

}  // namespace

TEST_CASE("adasum of every type, number of ranks and shape of a batch matches the definition") {
  for (const auto& hosts : worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64}) {
        for (const auto& counts :
             std::vector<std::vector<size_t>>{{1}, {7}, {5, 3, 0, 1000, 1}, {0, 40'001}}) {
          const std::string complaint = check(rank, dtype, counts, counts.size() == 1 ? 0.5 : 1);
          if (!complaint.empty()) return as_status(complaint);
        }
      }
      return as_status(check(rank, HVD_FLOAT32, {200'003, 12}, 1));
    }));
  }
}

TEST_CASE("adasum adds what is orthogonal and averages what is parallel") {
  for (const auto& hosts : worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      std::vector<float> orthogonal(static_cast<size_t>(rank.size()) * 3);
      for (size_t i = 0; i < 3; ++i) orthogonal[static_cast<size_t>(rank.rank()) * 3 + i] = 2;
      HVD_RETURN_IF_ERROR(run_adasum(rank, orthogonal));
      for (const float value : orthogonal) {
        if (value != 2) return internal_error(cat("orthogonal: ", value));
      }
      std::vector<float> equal{3, -4, 0, 5};
      HVD_RETURN_IF_ERROR(run_adasum(rank, equal));
      if (equal != std::vector<float>{3, -4, 0, 5}) {
        return internal_error(cat("equal: ", equal[0], " ", equal[1]));
      }
      std::vector<float> zeros(100);
      HVD_RETURN_IF_ERROR(run_adasum(rank, zeros));
      for (const float value : zeros) {
        if (value != 0) return internal_error(cat("zeros: ", value));
      }
      return {};
    }));
  }
}

TEST_CASE("adasum has the same bits on every rank, also for a set of some of them") {
  for (const auto& hosts : worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    std::mutex mutex;
    std::vector<std::vector<Bytes>> all, of_set;
    require_all_ok(world.run([&](Rank& rank) -> Status {
      const std::vector<size_t> counts{1000, 3, 20'011};
      Work work(HVD_FLOAT32, rank.rank(), counts);
      HVD_RETURN_IF_ERROR(rank.run(work.batch()));
      Work part(HVD_FLOAT16, rank.rank(), counts);
      const bool is_member = rank.rank() != 1;
      if (is_member) {
        std::vector<int32_t> members;
        for (int r = 0; r < rank.size(); ++r) {
          if (r != 1) members.push_back(r);
        }
        Group group(rank.mesh(), 1, members, 0);
        HVD_RETURN_IF_ERROR(rank.run(part.batch(), group));
      }
      std::vector<hvd_batch_tensor> none;
      HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_BARRIER, HVD_UINT8, none)));
      const std::lock_guard lock(mutex);
      all.push_back(work.outputs);
      if (is_member) of_set.push_back(part.outputs);
      return {};
    }));
    for (const auto& outputs : all) CHECK(outputs == all.front());
    for (const auto& outputs : of_set) CHECK(outputs == of_set.front());
  }
}

TEST_CASE("a rank that has joined counts as zeros in adasum") {
  World world({0, 0, 1});
  require_all_ok(world.run([](Rank& rank) -> Status {
    std::vector<float> values{1, 2, 2};
    const bool joined = rank.rank() == 1;
    std::vector<hvd_batch_tensor> tensors{{joined ? nullptr : values.data(),
                                           joined ? nullptr : values.data(), 3, 1, nullptr,
                                           nullptr}};
    hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
    batch.reduce_op = HVD_ADASUM;
    HVD_RETURN_IF_ERROR(rank.run(batch));
    if (values != std::vector<float>{1, 2, 2}) return internal_error(cat(values[0]));
    return {};
  }));
}

TEST_CASE("adasum is offered for floating-point types and no others") {
  std::vector<hvd_batch_tensor> none;
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    hvd_batch batch = batch_of(HVD_ALLREDUCE, static_cast<hvd_dtype>(dtype), none);
    batch.reduce_op = HVD_ADASUM;
    CHECK(collectives::can_run(batch) == (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ||
                                          dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64));
    batch.op = HVD_REDUCESCATTER;
    CHECK(!collectives::can_run(batch));
  }
}
