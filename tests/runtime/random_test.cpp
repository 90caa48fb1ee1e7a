// Random programs on runtimes of this process: every rank submits the same work in its own order,
// from one or two threads, and waits in another order. Compares results with reference arithmetic.
// HVD_PROGRAMS gives the number of programs, HVD_SEED the first seed.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "base/settings.h"
#include "base/text.h"
#include "runtime/rank_checks.h"
#include "runtime/runtime_api.h"
#include "runtime/shrink.h"

using hvd::cat;
using hvd::Deadline;
using hvd::Status;
using hvd::test::Links;
using hvd::test::Program;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Report;
using hvd::test::Vocabulary;
using hvd::test::Work;

namespace {

unsigned number_from(const char* variable, unsigned otherwise) {
  const auto text = hvd::environment_variable(variable);
  return text ? static_cast<unsigned>(hvd::parse_int(*text).value_or(otherwise)) : otherwise;
}

// Returns the failures; empty on success. The reports must outlive the ranks: released work may end
// late.
std::vector<std::string> run_on(Ranks& ranks, const Program& program, double timeout,
                                std::deque<Report>* reports) {
  for (int rank = 0; rank < ranks.size(); ++rank) reports->emplace_back();
  ranks.each([&](int rank) {
    hvd::test::RuntimeApi api(ranks[rank]);
    hvd::test::play(program, rank, api, {.timeout = timeout},
                    &(*reports)[static_cast<size_t>(rank)]);
  });
  return hvd::test::judge(*reports);
}

std::vector<std::string> run_alone(const Program& program, const RanksOptions& options) {
  std::deque<Report> reports;
  Ranks ranks(program.size, options);
  for (const Status& status : ranks.start_status) {
    if (!status.ok()) return {status.message()};
  }
  return run_on(ranks, program, 5, &reports);
}

void complain(const Program& program, const std::vector<std::string>& wrong,
              const RanksOptions& options) {
  const Program small = hvd::test::shrink(
      program, [&](const Program& smaller) { return !run_alone(smaller, options).empty(); }, 60);
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(wrong.size(), 20); ++i) text += wrong[i] + "\n";
  FAIL_CHECK(cat(text, "the smallest that still fails, of ", describe(small)));
}
// A job with random size and settings, and several programs one after another.
void run_world(unsigned seed, unsigned programs, const Vocabulary& vocabulary,
               RanksOptions options) {
  std::mt19937 random(seed);
  const char* thresholds[] = {"0", "1000", "134217728"};
  const char* capacities[] = {"0", "4", "1024"};
  const char* windows[] = {"0", "0.2", "1"};
  const int size = 1 + static_cast<int>(random() % 6);
  REQUIRE(options.settings.set("fusion_threshold", thresholds[random() % 3]).ok());
  REQUIRE(options.settings.set("cache_capacity", capacities[random() % 3]).ok());
  REQUIRE(options.settings.set("cycle_time", windows[random() % 3]).ok());
  int32_t machines = 0;
  for (int rank = 0; rank < size; ++rank) {
    // Machines are numbered in the order of their lowest ranks.
    const auto machine = static_cast<int32_t>(random() % static_cast<unsigned>(machines + 1));
    machines = std::max(machines, machine + 1);
    options.machines.push_back(machine);
  }
  std::deque<std::deque<Report>> reports;
  Ranks ranks(size, options);
  for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
  for (unsigned i = 0; i < programs; ++i) {
    const Program program = hvd::test::make_program(seed * 1000 + i, size, vocabulary);
    const auto wrong = run_on(ranks, program, 60, &reports.emplace_back());
    if (!wrong.empty()) return complain(program, wrong, options);
  }
}

}  // namespace

TEST_CASE("thousands of random programs come out as plain arithmetic says") {
  RanksOptions options;
  Vocabulary vocabulary = hvd::test::everything();
  SUBCASE("over memory links") {
    vocabulary.dtypes = {HVD_UINT8, HVD_INT32, HVD_INT64, HVD_FLOAT32, HVD_FLOAT64};
    vocabulary.uneven_alltoall = false;
  }
  SUBCASE("over the built-in links") {
    if (!hvd::test::has_builtin_links()) return;
    options.links = Links::kBuiltin;
  }
  vocabulary.sets = number_from("HVD_SETS", 1) != 0;
  vocabulary.joins = number_from("HVD_JOINS", 1) != 0;
  constexpr unsigned kOfWorld = 25;
  const unsigned first = number_from("HVD_SEED", 1);
  const unsigned worlds = number_from("HVD_PROGRAMS", HVD_TEST_PROGRAMS) / kOfWorld;
  for (unsigned seed = first; seed < first + worlds; ++seed) {
    CAPTURE(seed);
    run_world(seed, kOfWorld, vocabulary, options);
  }
}

TEST_CASE("a program that fails is made small for its reader") {
  const Program program = hvd::test::make_program(7, 3, hvd::test::everything());
  size_t steps = 0;
  for (const auto& round : program.rounds) steps += round.steps.size();
  REQUIRE(steps > 3);
  const std::string culprit = hvd::test::describe(program.rounds[0].steps[2]);
  const Program small = hvd::test::shrink(
      program, [&](const Program& one) { return describe(one).find(culprit) != std::string::npos; },
      200);
  REQUIRE(small.rounds.size() == 1);
  REQUIRE(small.rounds[0].steps.size() == 1);
  CHECK(hvd::test::describe(small.rounds[0].steps[0]) == culprit);
}

TEST_CASE("a step of thousands of long names goes through at once") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  hvd::test::require_started(ranks);
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
