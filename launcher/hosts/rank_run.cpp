#include "launcher/hosts/rank_run.h"

#include <iterator>

#include "base/text.h"
#include "launcher/hosts/host_run.h"
#include "launcher/protocol/moves.h"

namespace hvd::launcher {

bool may_move(RankState from, RankState to, RankCause cause) {
  using S = RankState;
  using C = RankCause;
  static constexpr Move<S, C> kMoves[] = {
      {{S::kPlanned}, S::kStarting, C::kOrder},
      {{S::kStarting}, S::kRunning, C::kStarted},
      {{S::kStarting, S::kRunning, S::kInInit, S::kInJob}, S::kInInit, C::kInit},
      {{S::kStarting, S::kRunning, S::kInInit, S::kInJob}, S::kInJob, C::kMet},
      {{S::kPlanned, S::kStarting, S::kRunning, S::kInInit, S::kInJob}, S::kEnding, C::kEnd},
      {{S::kStarting, S::kRunning, S::kInInit, S::kInJob, S::kEnding}, S::kEnded, C::kExit},
      {{S::kStarting, S::kRunning, S::kInInit, S::kInJob, S::kEnding}, S::kKilled, C::kKill},
  };
  return is_legal(kMoves, from, to, cause);
}

std::string_view to_string(RankState state) {
  constexpr std::string_view kNames[] = {"planned", "starting", "running", "in_init",
                                         "in_job",  "ending",   "ended",   "killed"};
  static_assert(std::size(kNames) == static_cast<size_t>(RankState::kKilled) + 1);
  return kNames[static_cast<size_t>(state)];
}

std::string_view to_string(RankCause cause) {
  constexpr std::string_view kNames[] = {"order", "started", "init", "met", "end", "exit", "kill"};
  static_assert(std::size(kNames) == static_cast<size_t>(RankCause::kKill) + 1);
  return kNames[static_cast<size_t>(cause)];
}

bool may_move(PlaceState from, PlaceState to) {
  using S = PlaceState;
  static constexpr Move<S> kMoves[] = {
      {{S::kPlanned}, S::kHeld},
      {{S::kPlanned, S::kHeld, S::kMember}, S::kStarting},
      {{S::kStarting, S::kAsking, S::kPreparing, S::kMember}, S::kAsking},
      {{S::kAsking}, S::kPreparing},
      {{S::kStarting, S::kAsking}, S::kMember},
      {{S::kPlanned, S::kHeld, S::kStarting, S::kAsking, S::kPreparing, S::kMember}, S::kGone},
  };
  return is_legal(kMoves, from, to);
}

std::string_view to_string(PlaceState state) {
  constexpr std::string_view kNames[] = {"planned",   "held",   "starting", "asking",
                                         "preparing", "member", "gone"};
  static_assert(std::size(kNames) == static_cast<size_t>(PlaceState::kGone) + 1);
  return kNames[static_cast<size_t>(state)];
}

std::string RankRun::describe() const {
  return cat(is_member() ? cat("rank ", rank_) : cat("process ", number()), " on host ",
             host_.name());
}

void RankRun::to(PlaceState next) {
  if (!may_move(place_state_, next))
    refuse_move(cat("the place of process ", number()), to_string(place_state_), to_string(next));
  place_state_ = next;
}

bool RankRun::go() {
  if (is_gone()) return false;
  to(PlaceState::kGone);
  return true;
}

void RankRun::to(RankState next, RankCause cause) {
  if (!may_move(state_, next, cause))
    refuse_move(cat("rank ", number()), to_string(state_), to_string(next), to_string(cause));
  state_ = next;
}

void RankRun::enter_init(const std::string& start) {
  if (state_ == RankState::kPlanned || state_ >= RankState::kEnding) return;
  to(RankState::kInInit, RankCause::kInit);
  start_ = start;
}

void RankRun::enter_job() {
  if (state_ == RankState::kPlanned || state_ >= RankState::kEnding) return;
  to(RankState::kInJob, RankCause::kMet);
}

void RankRun::ended(const RankExit& exit) {
  if (exit.after_grace)
    to(RankState::kKilled, RankCause::kKill);
  else
    to(RankState::kEnded, RankCause::kExit);
  exit_ = exit;
}

}  // namespace hvd::launcher
