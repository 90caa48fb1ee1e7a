// Ranks that wait in hvd.init() for other ranks, and the text for the user.
#include "launcher/observe/rules/init_waits.h"

#include <doctest/doctest.h>

#include "launcher/output/line_folder.h"
#include "tests/launcher/hosts/running_hosts.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;
using Ranks = std::vector<int>;

const InitWaits::Time kBegin{};

Joined report(int rank, const std::string& start = "g0/0/", const std::string& ranks = "",
              bool has_met = false) {
  return {rank, rank, 4, start, ranks, static_cast<uint8_t>(has_met)};
}

TEST_CASE("a rank waits from its own call until the last one has called") {
  RunningHosts hosts;
  InitWaits waits(hosts);
  CHECK_FALSE(waits.longest());
  waits.joined(report(2), kBegin);
  waits.joined(report(0), kBegin + seconds(1));
  REQUIRE(waits.longest());
  CHECK(waits.longest()->present == Ranks{0, 2});
  CHECK(waits.longest()->missing == Ranks{1, 3});
  CHECK(waits.longest()->since == kBegin);
  CHECK(waits.of(0)->missing == Ranks{1, 3});
  CHECK_FALSE(waits.of(1));
  waits.joined(report(1), kBegin + seconds(2));
  waits.joined(report(3), kBegin + seconds(3));
  CHECK_FALSE(waits.longest());
  CHECK_FALSE(waits.of(0));
}

TEST_CASE("a rank that has ended ends the wait for it, and only that") {
  RunningHosts hosts;
  InitWaits waits(hosts);
  hosts.rank(3).ended({.rank = 3});
  CHECK_FALSE(waits.hopeless());
  waits.joined(report(0), kBegin);
  REQUIRE(waits.hopeless());
  CHECK(waits.hopeless()->missing == Ranks{3});
  CHECK(waits.hopeless()->present == Ranks{0});
  CHECK(waits.longest()->missing == Ranks{1, 2});
  SUBCASE("nobody waits when those that waited have ended too") {
    hosts.rank(0).ended({.rank = 0});
    CHECK_FALSE(waits.hopeless());
    CHECK_FALSE(waits.longest());
  }
  SUBCASE("a report that was missed says that all ranks have met") {
    waits.joined(report(0, "g0/0/", "", true), kBegin);
    CHECK_FALSE(waits.hopeless());
  }
}

TEST_CASE("each start is a wait of its own, and a start of some ranks waits for these alone") {
  RunningHosts hosts;
  InitWaits waits(hosts);
  for (const int rank : {0, 1, 2, 3}) waits.joined(report(rank), kBegin);
  hosts.rank(1).ended({.rank = 1});
  CHECK_FALSE(waits.hopeless());
  waits.joined(report(0, "g0/1/", "0,2"), kBegin + seconds(1));
  CHECK_FALSE(waits.hopeless());
  CHECK(waits.longest()->missing == Ranks{2});
  waits.joined(report(3, "g0/1/"), kBegin + seconds(2));
  CHECK(waits.hopeless()->missing == Ranks{1});
  CHECK(waits.hopeless()->present == Ranks{3});
}

TEST_CASE("reports that say nothing of a start, or nonsense, are passed over") {
  RunningHosts hosts(*plan_slots({{"a", "", 2}}, {}));
  InitWaits waits(hosts);
  waits.joined(report(0, ""), kBegin);
  waits.joined(report(7), kBegin);
  waits.joined(report(-1), kBegin);
  waits.joined(report(0, "g0/0/", "1"), kBegin);
  waits.joined(report(0, "g0/0/", "1,9"), kBegin);
  CHECK_FALSE(waits.longest());
  CHECK_FALSE(waits.hopeless());
}

TEST_CASE("the sentences name ranks, hosts and processes") {
  const std::vector<std::string> hosts = {"a", "a", "b", "c", "d"};
  InitWaits::Wait wait{{0, 1, 3}, {2}, kBegin};
  CHECK(wait_sentence(wait, hosts, 60, "running (python3 train.py), 98 % of a core") ==
        "rank 2 on b has not called hvd.init() for 60 s: running (python3 train.py), 98 % of a "
        "core; ranks 0-1,3 wait for it");
  CHECK(start_line(5, wait, hosts, 12.3, 80) ==
        "ranks started 5; importing 1 (rank 2 on b); in hvd.init 3; 12 s");
  CHECK(start_line(5, {}, hosts, 0.9, 80) == "ranks started 5; 0 s");
  CHECK(start_line(5, wait, hosts, 12.3, 20).size() < 20);
  wait = {{4}, {0, 1, 2, 3}, kBegin};
  CHECK(wait_sentence(wait, hosts, 10, "sleeping (x), no CPU time") ==
        "ranks 0-3 on a, b, c have not called hvd.init() for 10 s: rank 0 is sleeping (x), no CPU "
        "time; rank 4 waits for them");
  wait = {{}, {0, 2, 3, 4}, kBegin};
  CHECK(ranks_on_hosts(wait.missing, hosts) == "ranks 0,2-4 on a, b, c and 1 more host");
}

}  // namespace
}  // namespace hvd::launcher
