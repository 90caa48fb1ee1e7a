// Ranks as real processes that get only their environment, over a rendezvous server.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "runtime/processes.h"

using hvd::cat;
using hvd::test::join;
using hvd::test::Outcome;
using hvd::test::spawn;

namespace {

std::vector<Outcome> run(int size, const std::string& what, bool with_ranks) {
  return hvd::test::run(size, {HVD_TEST_WORKER, {what}, with_ranks, {}});
}

}  // namespace

TEST_CASE("processes with ranks in their environment work together") {
  const auto outcomes = run(3, "sum", true);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(outcomes[static_cast<size_t>(rank)].code() == 0);
    CHECK(outcomes[static_cast<size_t>(rank)].output == cat(rank, " of 3, ", rank, " of 3 here\n"));
  }
}

TEST_CASE("processes without ranks get them from the rendezvous") {
  std::vector<std::string> outputs;
  for (const Outcome& outcome : run(3, "sum", false)) {
    CHECK(outcome.code() == 0);
    outputs.push_back(outcome.output);
  }
  std::sort(outputs.begin(), outputs.end());
  CHECK(outputs == std::vector<std::string>{"0 of 3, 0 of 3 here\n", "1 of 3, 1 of 3 here\n",
                                            "2 of 3, 2 of 3 here\n"});
}

TEST_CASE("processes start and end the runtime again and again") {
  for (const Outcome& outcome : run(2, "again-and-again", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a process that exits without shutdown does not crash") {
  for (const Outcome& outcome : run(2, "sum-and-exit", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a rank that is killed or exits fails the others with one cause that names it") {
  for (const char* what : {"lose-by-exit", "lose-by-signal"}) {
    CAPTURE(what);
    const auto outcomes = run(3, what, true);
    CHECK(outcomes[1].code() == (std::string(what) == "lose-by-exit" ? 3 : 128 + SIGKILL));
    for (const int rank : {0, 2}) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      INFO(outcome.output);
      CHECK(outcome.code() == 7);
      CHECK(outcome.output.find("rank 1") != std::string::npos);
    }
    CHECK(outcomes[0].output == outcomes[2].output);
  }
}

TEST_CASE("a forked child reads that it cannot use the runtime, and the parent goes on") {
  for (const Outcome& outcome : run(2, "fork", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a world of one needs no rendezvous") {
  const Outcome outcome = join(spawn(HVD_TEST_WORKER, {"sum"}, {}));
  CHECK(outcome.code() == 0);
  CHECK(outcome.output == "0 of 1, 0 of 1 here\n");
}
