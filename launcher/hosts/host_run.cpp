#include "launcher/hosts/host_run.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/text.h"
#include "launcher/protocol/moves.h"

namespace hvd::launcher {
namespace {

// An agent that has not answered for this number of seconds is silent. The launcher sends it no query, because the user
// would wait.
constexpr double kIsSilent = 2;

}  // namespace

bool may_move(HostState from, HostState to, HostCause cause) {
  using S = HostState;
  using C = HostCause;
  static constexpr StateSet<S> kReached = {S::kConnecting, S::kPreparing, S::kHeld,  S::kStarting,
                                           S::kRunning,    S::kLeaving,   S::kEnding};
  static constexpr Move<S, C> kMoves[] = {
      {{S::kPlanned}, S::kConnecting, C::kReach},
      {{S::kConnecting}, S::kPreparing, C::kConnected},
      {{S::kPreparing}, S::kHeld, C::kPrepared},
      {{S::kHeld}, S::kStarting, C::kOrder},
      {{S::kStarting}, S::kRunning, C::kStarted},
      {{S::kStarting, S::kRunning}, S::kLeaving, C::kLeave},
      {kReached, S::kEnding, C::kEnd},
      {{S::kPreparing, S::kHeld, S::kStarting, S::kRunning, S::kLeaving},
       S::kEnding,
       C::kAgentEnds},
      {{S::kHeld, S::kStarting, S::kRunning, S::kLeaving, S::kEnding}, S::kDone, C::kFinished},
      {{S::kConnecting, S::kPreparing, S::kHeld, S::kEnding}, S::kDone, C::kDrop},
      {kReached, S::kLost, C::kLost},
  };
  return is_legal(kMoves, from, to, cause);
}

std::string_view to_string(HostState state) {
  constexpr std::string_view kNames[] = {"planned", "connecting", "preparing", "held", "starting",
                                         "running", "leaving",    "ending",    "done", "lost"};
  static_assert(std::size(kNames) == static_cast<size_t>(HostState::kLost) + 1);
  return kNames[static_cast<size_t>(state)];
}

std::string_view to_string(HostCause cause) {
  constexpr std::string_view kNames[] = {"reach",    "connected", "prepared", "order",
                                         "started",  "leave",     "end",      "agent_ends",
                                         "finished", "drop",      "lost"};
  static_assert(std::size(kNames) == static_cast<size_t>(HostCause::kLost) + 1);
  return kNames[static_cast<size_t>(cause)];
}

void HostRun::to(HostState next, HostCause cause, Deadline deadline) {
  if (!may_move(state_, next, cause))
    refuse_move(cat("host ", name()), to_string(state_), to_string(next), to_string(cause));
  if (next != state_) since_ = Clock::now();
  if (next <= HostState::kRunning) furthest_ = next;
  state_ = next;
  cause_ = cause;
  deadline_ = deadline;
}

void HostRun::to(HostUse next) {
  HVD_CHECK(!is_gone());
  use_ = next;
}

void HostRun::ends_at(Clock::time_point time, std::string sentence) {
  ends_at_ = time;
  why_it_ends_ = std::move(sentence);
}

bool HostRun::has_process() const {
  return std::ranges::any_of(ranks_, [](const RankRun* rank) { return !rank->is_gone(); });
}

bool HostRun::has_member() const {
  return std::ranges::any_of(
      ranks_, [](const RankRun* rank) { return rank->is_member() && !rank->is_gone(); });
}

void HostRun::enter(SpawnStage stage, Deadline deadline) {
  if (state_ != HostState::kConnecting) return;
  stage_ = stage;
  since_ = Clock::now();
  deadline_ = deadline;
}

void HostRun::hold(std::shared_ptr<AgentLink> link) {
  link_ = std::move(link);
  advance(HostState::kPreparing, HostState::kHeld, HostCause::kPrepared);
}

void HostRun::started() {
  furthest_ = HostState::kRunning;
  advance(HostState::kStarting, HostState::kRunning, HostCause::kStarted);
  for (RankRun* rank : ranks_)
    rank->advance(RankState::kStarting, RankState::kRunning, RankCause::kStarted);
}

void HostRun::joined(const Joined& report) {
  const std::string start = cat(report.start, "/", report.ranks);
  for (RankRun* rank : ranks_) {
    const bool is_it = rank->number() == report.rank;
    if (report.has_met == 0) {
      if (is_it) rank->enter_init(start);
    } else if (is_it || (!report.start.empty() && rank->start() == start)) {
      rank->enter_job();
    }
  }
}

double HostRun::silence() const {
  if (is_over() || link_ == nullptr) return 0;
  const double seconds = link_->pings().silence_seconds();
  return seconds >= kIsSilent ? seconds : 0;
}

bool HostRun::can_answer() const { return !is_over() && link_ != nullptr && silence() == 0; }

void HostRun::close() {
  if (link_) link_->close();
}

}  // namespace hvd::launcher
