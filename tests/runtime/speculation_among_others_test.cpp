// Speculative allreduces of two ranks on two machines, interleaved with joins, other operations and
// shapes, withdrawn ids, and parameters that the autotuner changes.
#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "runtime/ranks.h"

using hvd::Status;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

// Rounds of one rank, equal on both ranks except for the times of submission.
class Rounds {
 public:
  Rounds(Ranks& ranks, int rank, unsigned seed)
      : ranks_(ranks), rank_(rank), common_(seed), own_(seed * 31 + static_cast<unsigned>(rank)) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      works_.clear();
      expected_.clear();
      used_.clear();
      for (unsigned count = 1 + common_() % 3; count > 0; --count) add(common_() % 8);
      for (size_t i = 0; i < works_.size(); ++i) {
        submit(works_[i]);
        if (own_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 200));
      }
      if (common_() % 6 == 0) join();
      for (size_t i = 0; i < works_.size(); ++i) finish(works_[i], expected_[i]);
    }
  }

 private:
  void add(unsigned kind) {
    const auto value = static_cast<double>(common_() % 100);
    const bool is_broadcast = kind == 0;
    const std::string name = hvd::cat(is_broadcast ? "b" : "a", common_() % 5);
    if (!used_.insert(name).second) return;
    works_.emplace_back(is_broadcast ? HVD_BROADCAST : HVD_ALLREDUCE, name,
                        std::vector<double>(kind == 1 ? 3 : 9, value + rank_), HVD_FLOAT64);
    expected_.push_back(is_broadcast ? value : 2 * value + 1);
  }

  // One rank first has work that the other rank does not submit.
  void join() {
    const bool is_alone = common_() % 2 == static_cast<unsigned>(rank_);
    const unsigned count = common_() % 3;
    for (unsigned i = 0; is_alone && i < count; ++i) {
      Work alone(HVD_ALLREDUCE, hvd::cat("alone", i), std::vector<double>(9, 5), HVD_FLOAT64);
      submit(alone);
      finish(alone, 5);
    }
    Work join(HVD_JOIN, "", std::vector<double>{}, HVD_FLOAT64);
    join.submission.name = nullptr;
    const Status status = join.run(ranks_[rank_]);
    REQUIRE_MESSAGE(status.ok(), status.message());
  }

  void submit(Work& work) {
    const Status status = work.submit(ranks_[rank_]);
    REQUIRE_MESSAGE(status.ok(), status.message());
  }

  void finish(Work& work, double expected) {
    const Status status = work.finish(ranks_[rank_]);
    REQUIRE_MESSAGE(status.ok(), status.message());
    for (const double value : work.result<double>()) REQUIRE(value == expected);
  }

  Ranks& ranks_;
  const int rank_;
  std::mt19937 common_, own_;
  std::deque<Work> works_;
  std::vector<double> expected_;
  std::set<std::string> used_;
};

}  // namespace

TEST_CASE("speculative allreduces are right among joins, other operations and tuning") {
  uint64_t speculative = 0, wasted = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    RanksOptions options;
    options.machines = {0, 1};
    if (seed % 3 != 1) options.late = std::chrono::microseconds(seed % 2 == 0 ? 600 : 60);
    options.late_seed = seed;
    const char* thresholds[] = {"134217728", "0", "100", "134217728"};
    REQUIRE(options.settings.set("cache_capacity", seed % 7 == 0 ? "3" : "1024").ok());
    if (seed % 5 == 4) {
      for (const auto& [key, value] : {std::pair{"autotune", "1"},
                                       {"autotune_warmup_samples", "1"},
                                       {"autotune_steps_per_sample", "1"},
                                       {"autotune_points", "3"}}) {
        REQUIRE(options.settings.set(key, value).ok());
      }
    } else {
      REQUIRE(options.settings.set("fusion_threshold", thresholds[seed % 4]).ok());
      REQUIRE(options.settings.set("cycle_time", seed % 5 == 0 ? "0.3" : "0").ok());
    }
    Ranks ranks(2, options);
    for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
    ranks.each([&](int rank) { Rounds(ranks, rank, seed).run(60); });
    for (int rank = 0; rank < 2; ++rank) {
      speculative += ranks[rank].counts().speculative_batches;
      wasted += ranks[rank].counts().eager_sends_wasted;
    }
  }
  MESSAGE(speculative, " speculative batches, ", wasted, " times wasted");
  CHECK(speculative > 0);
}
