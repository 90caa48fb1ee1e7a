// Late, stalled and broken links under random programs on runtimes of this process: late links
// change no result, broken links end all work on all ranks with one cause.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "base/text.h"
#include "runtime/link_store.h"
#include "runtime/rank_checks.h"
#include "runtime/runtime_api.h"

using hvd::Code;
using hvd::Status;
using hvd::test::Links;
using hvd::test::over_relay;
using hvd::test::Program;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Relay;
using hvd::test::Report;
using hvd::test::require_started;
using hvd::test::Vocabulary;

namespace {

using Reports = std::deque<Report>;

// Assigns each rank to a random machine, with two machines at least.
std::vector<int32_t> machines_from(std::mt19937& random) {
  std::vector<int32_t> machines(2 + random() % 4);
  for (size_t i = 1; i < machines.size(); ++i) machines[i] = static_cast<int32_t>(random() % 3);
  machines.back() = machines[0] + 1;
  return machines;
}

void play(Ranks& ranks, const Program& program, Reports* reports,
          const hvd::test::PlayOptions& options = {}) {
  for (int rank = 0; rank < ranks.size(); ++rank) reports->emplace_back();
  ranks.each([&](int rank) {
    hvd::test::RuntimeApi api(ranks[rank]);
    hvd::test::play(program, rank, api, options, &(*reports)[static_cast<size_t>(rank)]);
  });
}

bool is_right(const Program& program, const Reports& reports) {
  const auto wrong = hvd::test::judge(reports);
  std::string text;
  for (const std::string& one : wrong) text += one + "\n";
  CHECK_MESSAGE(wrong.empty(), hvd::cat(text, describe(program)));
  return wrong.empty();
}

// Plays programs one after another until the links break. Returns each rank's error.
std::vector<Status> play_until_broken(Ranks& ranks, unsigned seed, const Vocabulary& vocabulary,
                                      std::deque<Reports>* kept) {
  std::vector<Status> causes(static_cast<size_t>(ranks.size()));
  const auto is_whole = [&] {
    return std::all_of(causes.begin(), causes.end(),
                       [](const Status& cause) { return cause.ok(); });
  };
  for (unsigned i = 0; is_whole(); ++i) {
    const Program program = hvd::test::make_program(seed * 100 + i, ranks.size(), vocabulary);
    Reports& reports = kept->emplace_back();
    play(ranks, program, &reports, {.timeout = 20, .may_break = true});
    for (size_t rank = 0; rank < causes.size(); ++rank) {
      for (const std::string& complaint : reports[rank].complaints) FAIL_CHECK(complaint);
      causes[rank] = reports[rank].broken;
      if (!reports[rank].complaints.empty()) return causes;
    }
  }
  // A rank without pending work gets its error with its next operation.
  for (int rank = 0; rank < ranks.size(); ++rank) {
    Status& cause = causes[static_cast<size_t>(rank)];
    if (!cause.ok()) continue;
    hvd::test::Work work(HVD_ALLREDUCE, "after", std::vector<float>{1}, HVD_FLOAT32);
    cause = work.run(ranks[rank]);
  }
  return causes;
}

void check_one_cause(const std::vector<Status>& causes) {
  for (const Status& cause : causes) {
    CHECK(cause.code() == Code::kAborted);
    CHECK(cause.message() == causes[0].message());
    CHECK(cause.message().find("rank ") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("whatever comes late, programs come out right") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::deque<Reports> kept;
    RanksOptions options;
    options.late = std::chrono::microseconds(seed % 3 == 0 ? 5000 : 300);
    options.late_seed = seed;
    Vocabulary vocabulary;
    vocabulary.dtypes = {HVD_INT32, HVD_FLOAT64};
    vocabulary.uneven_alltoall = false;
    const int size = 2 + static_cast<int>(random() % 4);
    options.machines.assign(static_cast<size_t>(size), 0);
    options.machines.back() = 1;
    Ranks ranks(size, options);
    require_started(ranks);
    for (unsigned i = 0; i < 3; ++i) {
      const Program program = hvd::test::make_program(seed * 10 + i, size, vocabulary);
      play(ranks, program, &kept.emplace_back());
      if (!is_right(program, kept.back())) break;
    }
  }
}

TEST_CASE("TCP links that are late, in odd pieces, or stand still for a while change nothing") {
  if (!hvd::test::has_builtin_links()) return;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Relay relay;
    if (seed % 2 == 0) relay.delay(seed, std::chrono::microseconds(1 + random() % 2000));
    std::deque<Reports> kept;
    const auto machines = machines_from(random);
    Ranks ranks(static_cast<int>(machines.size()), over_relay(relay, machines));
    require_started(ranks);
    std::thread saboteur([&, from = random() % 5000] {
      if (!relay.wait_for_bytes(from)) return;
      relay.stall();
      relay.wait_for_withheld();
      relay.resume();
    });
    for (unsigned i = 0; i < 3; ++i) {
      const Program program =
          hvd::test::make_program(seed * 10 + i, ranks.size(), hvd::test::everything());
      play(ranks, program, &kept.emplace_back());
      if (!is_right(program, kept.back())) break;
    }
    relay.abandon();
    saboteur.join();
  }
}

TEST_CASE("a rank that is lost at any moment ends everything everywhere with one cause") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::deque<Reports> kept;
    RanksOptions options;
    Vocabulary vocabulary;
    vocabulary.dtypes = {HVD_INT32, HVD_FLOAT64};
    vocabulary.uneven_alltoall = false;
    const int size = 2 + static_cast<int>(random() % 4);
    Ranks ranks(size, options);
    require_started(ranks);
    const auto lost = static_cast<int32_t>(random() % static_cast<unsigned>(size));
    const uint64_t after = random() % 400;
    std::atomic<bool> over{false};
    std::thread saboteur([&] {
      while (ranks.world().sent.load() < after && !over.load()) std::this_thread::yield();
      ranks.world().lose(lost);
    });
    auto causes = play_until_broken(ranks, seed, vocabulary, &kept);
    over.store(true);
    saboteur.join();
    // The lost rank's own error may differ from the other ranks' cause.
    causes.erase(causes.begin() + lost);
    check_one_cause(causes);
  }
}

TEST_CASE("a TCP link that is cut at any moment ends everything everywhere with one cause") {
  if (!hvd::test::has_builtin_links()) return;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Relay relay;
    std::deque<Reports> kept;
    const auto machines = machines_from(random);
    Ranks ranks(static_cast<int>(machines.size()), over_relay(relay, machines));
    require_started(ranks);
    // Not every connection is in use, so cut several.
    std::thread saboteur([&, from = random() % 50000, pick = static_cast<unsigned>(random())] {
      for (unsigned i = 0; relay.wait_for_bytes(from + i * 5000); ++i) relay.cut_one(pick + i);
    });
    const auto causes = play_until_broken(ranks, seed, hvd::test::everything(), &kept);
    relay.abandon();
    saboteur.join();
    // Each end of a cut link takes the other end for lost; the first report wins.
    check_one_cause(causes);
    for (const Status& cause : causes) {
      INFO(cause.message());
      CHECK((cause.code() == Code::kAborted || cause.code() == Code::kUnavailable));
      const bool is_lost =
          cause.message().find(" was lost: its connection to rank ") != std::string::npos ||
          cause.message().find("the connection between rank ") != std::string::npos;
      CHECK((is_lost || cause.message().find(" cannot reach rank ") != std::string::npos));
    }
  }
}
