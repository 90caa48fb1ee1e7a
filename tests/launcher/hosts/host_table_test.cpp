#include "launcher/hosts/host_table.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

const Host kHostA{"a", "", 1};
const SlotPlan kPlan = *plan_slots({{"a", "", 2}, {"b", "", 2}}, {});

constexpr HostState kAllHostStates[] = {
    HostState::kPlanned,  HostState::kConnecting, HostState::kPreparing, HostState::kHeld,
    HostState::kStarting, HostState::kRunning,    HostState::kLeaving,   HostState::kEnding,
    HostState::kDone,     HostState::kLost};
constexpr HostCause kAllHostCauses[] = {
    HostCause::kReach,    HostCause::kConnected, HostCause::kPrepared, HostCause::kOrder,
    HostCause::kStarted,  HostCause::kLeave,     HostCause::kEnd,      HostCause::kAgentEnds,
    HostCause::kFinished, HostCause::kDrop,      HostCause::kLost};

constexpr RankState kAllRankStates[] = {
    RankState::kPlanned, RankState::kStarting, RankState::kRunning, RankState::kInInit,
    RankState::kInJob,   RankState::kEnding,   RankState::kEnded,   RankState::kKilled};
constexpr RankCause kAllRankCauses[] = {RankCause::kOrder, RankCause::kStarted, RankCause::kInit,
                                        RankCause::kMet,   RankCause::kEnd,     RankCause::kExit,
                                        RankCause::kKill};

template <typename State, typename Cause>
struct LegalMove {
  State from;
  Cause cause;
  State to;
};

template <typename State, typename Cause, size_t kStates, size_t kCauses>
std::vector<LegalMove<State, Cause>> legal_moves(const State (&states)[kStates],
                                                 const Cause (&causes)[kCauses]) {
  std::vector<LegalMove<State, Cause>> moves;
  for (const State from : states) {
    for (const Cause cause : causes) {
      for (const State to : states) {
        if (may_move(from, to, cause)) moves.push_back({from, cause, to});
      }
    }
  }
  return moves;
}

// Returns whether HVD_CHECK ends a process that calls the function.
bool ends_the_process(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    action();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

// Moves a host to a state by the fewest events.
void bring(HostRun& host, HostState state) {
  const auto is_there = [&] { return host.state() == state; };
  if (is_there()) return;
  host.to(HostState::kConnecting, HostCause::kReach);
  if (state == HostState::kEnding) return host.to(HostState::kEnding, HostCause::kEnd);
  if (state == HostState::kDone) return host.to(HostState::kDone, HostCause::kDrop);
  if (state == HostState::kLost) return host.to(HostState::kLost, HostCause::kLost);
  const LegalMove<HostState, HostCause> way[] = {
      {HostState::kConnecting, HostCause::kConnected, HostState::kPreparing},
      {HostState::kPreparing, HostCause::kPrepared, HostState::kHeld},
      {HostState::kHeld, HostCause::kOrder, HostState::kStarting},
      {HostState::kStarting, HostCause::kStarted, HostState::kRunning},
      {HostState::kRunning, HostCause::kLeave, HostState::kLeaving}};
  for (const auto& move : way) {
    if (is_there()) return;
    host.to(move.to, move.cause);
  }
  REQUIRE(is_there());
}

}  // namespace

TEST_CASE("a host makes each move of its table") {
  for (const auto& move : legal_moves(kAllHostStates, kAllHostCauses)) {
    CAPTURE(to_string(move.from));
    CAPTURE(to_string(move.cause));
    HostRun host(0, kHostA);
    bring(host, move.from);
    host.to(move.to, move.cause);
    CHECK(host.state() == move.to);
    CHECK(host.cause() == move.cause);
  }
}

TEST_CASE("the table of a host has the moves of the drawing and no others") {
  // By state: the causes of the state's transitions.
  const std::set<std::pair<HostState, HostCause>> drawn = [] {
    std::set<std::pair<HostState, HostCause>> moves = {
        {HostState::kPlanned, HostCause::kReach},
        {HostState::kConnecting, HostCause::kConnected},
        {HostState::kPreparing, HostCause::kPrepared},
        {HostState::kHeld, HostCause::kOrder},
        {HostState::kStarting, HostCause::kStarted},
        {HostState::kStarting, HostCause::kLeave},
        {HostState::kRunning, HostCause::kLeave},
        {HostState::kConnecting, HostCause::kDrop},
        {HostState::kPreparing, HostCause::kDrop},
        {HostState::kHeld, HostCause::kDrop},
        {HostState::kEnding, HostCause::kDrop}};
    for (const HostState state :
         {HostState::kConnecting, HostState::kPreparing, HostState::kHeld, HostState::kStarting,
          HostState::kRunning, HostState::kLeaving, HostState::kEnding}) {
      moves.insert({state, HostCause::kEnd});
      moves.insert({state, HostCause::kLost});
      if (state > HostState::kConnecting && state < HostState::kEnding) {
        moves.insert({state, HostCause::kAgentEnds});
      }
      if (state > HostState::kPreparing) moves.insert({state, HostCause::kFinished});
    }
    return moves;
  }();
  std::set<std::pair<HostState, HostCause>> found;
  const auto legal = legal_moves(kAllHostStates, kAllHostCauses);
  for (const auto& move : legal) found.insert({move.from, move.cause});
  CHECK(found == drawn);
  CHECK(legal.size() == drawn.size());  // a cause leads to one state
}

TEST_CASE("an illegal move of a host or a rank ends the launcher") {
  CHECK(ends_the_process([] {
    HostRun host(0, kHostA);
    host.to(HostState::kRunning, HostCause::kStarted);
  }));
  CHECK(ends_the_process([] {
    HostRun host(0, kHostA);
    bring(host, HostState::kLost);
    host.to(HostState::kDone, HostCause::kFinished);
  }));
  CHECK(ends_the_process([] {
    HostTable table(kPlan);
    table.rank(0).to(RankState::kInJob, RankCause::kMet);
  }));
  CHECK_FALSE(ends_the_process([] {
    HostRun host(0, kHostA);
    bring(host, HostState::kRunning);
  }));
}

TEST_CASE("a step of the start is ignored once the end of the host was ordered") {
  HostRun host(0, kHostA);
  bring(host, HostState::kPreparing);
  host.to(HostState::kEnding, HostCause::kEnd);
  host.hold(nullptr);
  CHECK(host.state() == HostState::kEnding);
  host.to(HostState::kLost, HostCause::kLost);
  CHECK(host.is_over());
}

TEST_CASE("a host that is over knows whether its ranks had got the order to start") {
  HostRun early(0, kHostA);
  bring(early, HostState::kHeld);
  early.to(HostState::kEnding, HostCause::kAgentEnds);
  early.to(HostState::kLost, HostCause::kLost);
  CHECK_FALSE(early.had_ranks());
  HostRun late(1, kHostA);
  bring(late, HostState::kStarting);
  late.to(HostState::kLost, HostCause::kLost);
  CHECK(late.had_ranks());
}

TEST_CASE("a start that is known late leaves the later states of host and ranks") {
  HostTable table(kPlan);
  HostRun& host = table.host(0);
  bring(host, HostState::kStarting);
  for (RankRun* rank : host.ranks()) rank->to(RankState::kStarting, RankCause::kOrder);
  CHECK_FALSE(host.has_started());
  host.to(HostState::kLeaving, HostCause::kLeave);
  table.rank(0).ended({.rank = 0});
  host.started();
  CHECK(host.has_started());
  CHECK(host.state() == HostState::kLeaving);
  CHECK(table.rank(0).state() == RankState::kEnded);
  CHECK(table.rank(1).state() == RankState::kRunning);
}

TEST_CASE("the stage and the deadline of a host go with its state") {
  HostRun host(0, kHostA);
  bring(host, HostState::kConnecting);
  host.enter(SpawnStage::kAuthenticate, Deadline::after_seconds(5));
  CHECK(host.stage() == SpawnStage::kAuthenticate);
  CHECK_FALSE(host.deadline().is_never());
  host.to(HostState::kPreparing, HostCause::kConnected);
  CHECK(host.deadline().is_never());
  host.enter(SpawnStage::kResolve);  // the host has already passed this stage
  CHECK(host.stage() == SpawnStage::kAuthenticate);
}

TEST_CASE("a rank makes each move of its table") {
  const std::set<RankState> causes_of_exit = {RankState::kStarting, RankState::kRunning,
                                              RankState::kInInit, RankState::kInJob,
                                              RankState::kEnding};
  for (const auto& move : legal_moves(kAllRankStates, kAllRankCauses)) {
    CAPTURE(to_string(move.from));
    CAPTURE(to_string(move.cause));
    HostTable table(kPlan);
    RankRun& rank = table.rank(1);
    if (move.from != RankState::kPlanned) rank.to(RankState::kStarting, RankCause::kOrder);
    if (move.from == RankState::kRunning) rank.to(RankState::kRunning, RankCause::kStarted);
    if (move.from == RankState::kInInit) rank.enter_init("1");
    if (move.from == RankState::kInJob) rank.enter_job();
    if (move.from == RankState::kEnding) rank.to(RankState::kEnding, RankCause::kEnd);
    REQUIRE(rank.state() == move.from);
    rank.to(move.to, move.cause);
    CHECK(rank.state() == move.to);
    const bool is_end = move.cause == RankCause::kExit || move.cause == RankCause::kKill;
    CHECK(rank.is_over() == is_end);
    if (is_end) CHECK(causes_of_exit.contains(move.from));
  }
}

TEST_CASE("a rank records how it ended") {
  HostTable table(kPlan);
  for (RankRun& rank : table.ranks()) rank.to(RankState::kStarting, RankCause::kOrder);
  table.rank(0).ended({.rank = 0});
  table.rank(1).ended({.rank = 1, .code = 3});
  table.rank(2).ended({.rank = 2, .signal = SIGKILL, .after_grace = true});
  CHECK(table.rank(0).has_succeeded());
  CHECK_FALSE(table.rank(1).has_succeeded());
  CHECK(table.rank(1).exit().code == 3);
  CHECK(table.rank(2).state() == RankState::kKilled);
  CHECK_FALSE(table.rank(2).has_succeeded());
  CHECK(table.living_ranks() == 1);
}

TEST_CASE("a rank that is ending does not come back by a late report") {
  HostTable table(kPlan);
  RankRun& rank = table.rank(0);
  rank.enter_job();
  CHECK(rank.state() == RankState::kPlanned);
  rank.to(RankState::kEnding, RankCause::kEnd);
  rank.enter_init("1");
  rank.enter_job();
  CHECK(rank.state() == RankState::kEnding);
}

TEST_CASE("one report of a host brings its ranks of that start into the job") {
  HostTable table(*plan_slots({{"a", "", 3}, {"b", "", 1}}, {}));
  for (RankRun& rank : table.ranks()) rank.to(RankState::kStarting, RankCause::kOrder);
  HostRun& a = table.host(0);
  a.joined({.rank = 0, .start = "s", .ranks = "0-1,3"});
  a.joined({.rank = 1, .start = "s", .ranks = "0-1,3"});
  a.joined({.rank = 2, .start = "t", .ranks = "2"});
  a.joined({.rank = 3, .start = "s", .ranks = "0-1,3"});  // rank 3 is not on this host
  CHECK(table.rank(0).state() == RankState::kInInit);
  CHECK(table.rank(3).state() == RankState::kStarting);
  a.joined({.rank = 0, .start = "s", .ranks = "0-1,3", .has_met = 1});
  CHECK(table.rank(0).state() == RankState::kInJob);
  CHECK(table.rank(1).state() == RankState::kInJob);
  CHECK(table.rank(2).state() == RankState::kInInit);
  CHECK(table.rank(3).state() == RankState::kStarting);
}

TEST_CASE("a table grows by hosts without moving those it has") {
  HostTable table(kPlan);
  const HostRun* const first = &table.host(0);
  const RankRun* const last = &table.rank(3);
  int added = -1;
  table.on_added([&](HostRun& host) { added = host.number(); });
  for (int host = 2; host < 100; ++host) {
    HostRun& run = table.add({"c", "", 1}, {{.rank = table.size(), .host = host}});
    CHECK(added == host);
    CHECK(run.ranks().size() == 1);
    CHECK(&run.ranks()[0]->host() == &run);
  }
  CHECK(&table.host(0) == first);
  CHECK(&table.rank(3) == last);
  CHECK(table.hosts().size() == 100);
  CHECK(table.size() == 102);
  CHECK_FALSE(table.is_over());
  for (HostRun& host : table.hosts()) bring(host, HostState::kDone);
  CHECK(table.is_over());
  CHECK(table.living_ranks() == 0);
}

TEST_CASE("the place of a process makes the moves of its drawing and no others") {
  std::string moves;
  for (int from = 0; from <= static_cast<int>(PlaceState::kGone); ++from) {
    moves += cat(to_string(PlaceState(from)), ":");
    for (int to = 0; to <= static_cast<int>(PlaceState::kGone); ++to) {
      if (may_move(PlaceState(from), PlaceState(to))) moves += cat(" ", to_string(PlaceState(to)));
    }
    moves += "\n";
  }
  CHECK(moves ==
        "planned: held starting gone\nheld: starting gone\nstarting: asking member gone\n"
        "asking: asking preparing member gone\npreparing: asking gone\n"
        "member: starting asking gone\ngone:\n");
  HostTable table(kPlan);
  CHECK(table.rank(0).go());
  CHECK_FALSE(table.rank(0).go());
  CHECK(ends_the_process([&] { table.rank(0).to(PlaceState::kAsking); }));
  CHECK(ends_the_process([&] { table.rank(1).to(PlaceState::kMember); }));
  table.host(0).to(HostUse::kLeaving);
  table.host(0).to(HostUse::kUsed);
  table.host(0).to(HostUse::kGone);
  CHECK(ends_the_process([&] { table.host(0).to(HostUse::kUsed); }));
}

TEST_CASE("a generation gives ranks to processes, and the numbers of others are none") {
  HostTable table(kPlan);
  CHECK(table.generation() == -1);
  CHECK(table.members().size() == 4);
  CHECK(table.rank_of(3) == 3);
  const int members[] = {3, 1};
  table.set_members(2, members);
  CHECK(table.generation() == 2);
  CHECK(table.rank(3).describe() == "rank 0 on host b");
  CHECK(table.rank(0).describe() == "process 0 on host a");
  CHECK(table.members()[1] == &table.rank(1));
  CHECK(table.rank_of(int64_t{1} << 32 | 1) == -1);
  CHECK(table.rank_of(-1) == -1);
  table.add({"c", "", 1}, {{.rank = 4, .host = 2}});
  CHECK_FALSE(table.rank(4).is_member());
  table.set_members(-1, {});
  CHECK_FALSE(table.has_members());
  CHECK(table.rank_of(1) == -1);
}

TEST_CASE("each state has its name") {
  std::string hosts, ranks;
  for (const HostState state : kAllHostStates) hosts += cat(to_string(state), " ");
  for (const RankState state : kAllRankStates) ranks += cat(to_string(state), " ");
  CHECK(hosts == "planned connecting preparing held starting running leaving ending done lost ");
  CHECK(ranks == "planned starting running in_init in_job ending ended killed ");
}

}  // namespace hvd::launcher
