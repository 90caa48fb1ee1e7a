// Random programs: every rank submits the same work in an order of its own, from several threads,
// and waits in another order; results against plain arithmetic.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/ranks.h"

using hvd::Deadline;
using hvd::Status;
using hvd::test::Links;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

struct Step {
  int32_t op = HVD_ALLREDUCE;
  std::string name;
  int64_t count = 0;
  int32_t reduce_op = HVD_SUM;
  int32_t root = 0;
};

// The same for all ranks.
std::vector<Step> program(unsigned seed, int size, int round) {
  std::mt19937 random(seed);
  std::vector<Step> steps(40);
  const int32_t ops[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLGATHER,
                         HVD_BROADCAST, HVD_BARRIER};
  const int32_t reductions[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX};
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    step.op = ops[random() % 6];
    step.count = static_cast<int64_t>(random() % 3 == 0 ? random() % 20000 : random() % 40);
    step.reduce_op = reductions[random() % 4];
    step.root = static_cast<int32_t>(random() % static_cast<unsigned>(size));
    // Some names come back in the next round with other shapes, some with the same.
    step.name = "s" + std::to_string(i) + (i % 5 == 0 ? "r" + std::to_string(round) : "");
  }
  return steps;
}

double value_of(int rank, int64_t index) { return static_cast<double>((rank + 1) * (index % 7)); }

std::vector<double> input_of(const Step& step, int rank) {
  const int64_t count =
      step.op == HVD_ALLGATHER ? step.count * (rank % 2 + 1) / 2 : step.count;
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  return values;
}

double expected_of(const Step& step, int64_t index, int size) {
  if (step.op == HVD_BROADCAST) return value_of(step.root, index);
  std::vector<double> values;
  for (int rank = 0; rank < size; ++rank) values.push_back(value_of(rank, index));
  if (step.reduce_op == HVD_MIN) return *std::min_element(values.begin(), values.end());
  if (step.reduce_op == HVD_MAX) return *std::max_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return step.reduce_op == HVD_AVERAGE ? sum / size : sum;
}

bool is_right(const Step& step, const Work& work, hvd::runtime::Runtime& runtime, int size) {
  if (step.op == HVD_BARRIER) return true;
  if (step.op != HVD_ALLGATHER) {
    const auto result = work.result<double>();
    for (size_t i = 0; i < result.size(); ++i) {
      const double right = expected_of(step, static_cast<int64_t>(i), size);
      if (std::abs(result[i] - right) > 1e-9 * std::abs(right)) return false;
    }
    return true;
  }
  hvd_output output{};
  output.struct_size = sizeof output;
  if (!runtime.output(work.handle, 0, &output).ok()) return false;
  std::vector<double> right;
  for (int rank = 0; rank < size; ++rank) {
    const auto values = input_of(step, rank);
    right.insert(right.end(), values.begin(), values.end());
  }
  const auto* data = static_cast<const double*>(output.data);
  return output.shape[0] == static_cast<int64_t>(right.size()) &&
         std::equal(right.begin(), right.end(), data);
}

void run_part(const std::vector<Step>& steps, std::vector<size_t> order, unsigned seed, int rank,
              Ranks& ranks) {
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  std::deque<Work> works;
  for (const size_t i : order) {
    const Step& step = steps[i];
    works.emplace_back(step.op, step.name, input_of(step, rank), HVD_FLOAT64);
    works.back().submission.reduce_op = step.reduce_op;
    works.back().submission.root_rank = step.root;
    const Status status = works.back().submit(ranks[rank]);
    CHECK_MESSAGE(status.ok(), status.message());
  }
  std::vector<size_t> waits(order.size());
  std::iota(waits.begin(), waits.end(), 0);
  std::shuffle(waits.begin(), waits.end(), random);
  for (const size_t i : waits) {
    const auto status = ranks[rank].wait(works[i].handle, Deadline::after_seconds(60));
    REQUIRE(status);
    CHECK_MESSAGE(status->ok(), status->message());
    CHECK_MESSAGE(is_right(steps[order[i]], works[i], ranks[rank], ranks.size()),
                  steps[order[i]].name);
    CHECK(ranks[rank].release(works[i].handle).ok());
  }
}

}  // namespace

TEST_CASE("random programs in random orders from two threads of each rank come out right") {
  RanksOptions options;
  SUBCASE("over memory links") {}
  SUBCASE("over the built-in links") {
    if (!hvd::test::has_builtin_links()) return;
    options.links = Links::kBuiltin;
  }
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const int size = 1 + static_cast<int>(seed) % 4;
    Ranks ranks(size, options);
    for (const Status& status : ranks.start_status) REQUIRE(status.ok());
    ranks.each([&](int rank) {
      for (int round = 0; round < 6; ++round) {
        const auto steps = program(seed + static_cast<unsigned>(round / 2), size, round);
        std::vector<size_t> halves[2];
        for (size_t i = 0; i < steps.size(); ++i) halves[i % 2].push_back(i);
        const auto start = seed * 1000 + static_cast<unsigned>(rank * 10 + round);
        std::thread other([&] { run_part(steps, halves[1], start + 500, rank, ranks); });
        run_part(steps, halves[0], start, rank, ranks);
        other.join();
      }
    });
  }
}

TEST_CASE("a step of thousands of long names goes through at once") {
  RanksOptions options;
  SUBCASE("over memory links") {}
  SUBCASE("over the built-in links") {
    if (!hvd::test::has_builtin_links()) return;
    options.links = Links::kBuiltin;
  }
  Ranks ranks(3, options);
  for (const Status& status : ranks.start_status) REQUIRE(status.ok());
  ranks.each([&](int rank) {
    for (int step = 0; step < 3; ++step) {
      std::deque<Work> works;
      for (int i = 0; i < 3000; ++i) {
        works.emplace_back(HVD_ALLREDUCE, std::string(100, 'n') + std::to_string(i),
                           std::vector<float>{1}, HVD_FLOAT32);
        REQUIRE(works.back().submit(ranks[rank]).ok());
      }
      for (Work& work : works) {
        const Status status = work.finish(ranks[rank]);
        REQUIRE_MESSAGE(status.ok(), status.message());
        REQUIRE(work.result<float>()[0] == 3);
      }
    }
  });
}
