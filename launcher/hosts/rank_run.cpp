#include "launcher/hosts/rank_run.h"

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr RankMove kRankMoves[] = {
    {RankState::kPlanned, RankCause::kOrder, RankState::kStarting},
    {RankState::kStarting, RankCause::kStarted, RankState::kRunning},
    {RankState::kStarting, RankCause::kInit, RankState::kInInit},
    {RankState::kRunning, RankCause::kInit, RankState::kInInit},
    {RankState::kInInit, RankCause::kInit, RankState::kInInit},
    {RankState::kInJob, RankCause::kInit, RankState::kInInit},
    {RankState::kStarting, RankCause::kMet, RankState::kInJob},
    {RankState::kRunning, RankCause::kMet, RankState::kInJob},
    {RankState::kInInit, RankCause::kMet, RankState::kInJob},
    {RankState::kInJob, RankCause::kMet, RankState::kInJob},
    {RankState::kPlanned, RankCause::kEnd, RankState::kEnding},
    {RankState::kStarting, RankCause::kEnd, RankState::kEnding},
    {RankState::kRunning, RankCause::kEnd, RankState::kEnding},
    {RankState::kInInit, RankCause::kEnd, RankState::kEnding},
    {RankState::kInJob, RankCause::kEnd, RankState::kEnding},
    {RankState::kStarting, RankCause::kExit, RankState::kEnded},
    {RankState::kRunning, RankCause::kExit, RankState::kEnded},
    {RankState::kInInit, RankCause::kExit, RankState::kEnded},
    {RankState::kInJob, RankCause::kExit, RankState::kEnded},
    {RankState::kEnding, RankCause::kExit, RankState::kEnded},
    {RankState::kStarting, RankCause::kKill, RankState::kKilled},
    {RankState::kRunning, RankCause::kKill, RankState::kKilled},
    {RankState::kInInit, RankCause::kKill, RankState::kKilled},
    {RankState::kInJob, RankCause::kKill, RankState::kKilled},
    {RankState::kEnding, RankCause::kKill, RankState::kKilled},
};

}  // namespace

std::span<const RankMove> rank_moves() { return kRankMoves; }

std::string_view to_string(RankState state) {
  switch (state) {
    case RankState::kPlanned:
      return "planned";
    case RankState::kStarting:
      return "starting";
    case RankState::kRunning:
      return "running";
    case RankState::kInInit:
      return "in_init";
    case RankState::kInJob:
      return "in_job";
    case RankState::kEnding:
      return "ending";
    case RankState::kEnded:
      return "ended";
    case RankState::kKilled:
      return "killed";
  }
  return "?";
}

std::string_view to_string(RankCause cause) {
  switch (cause) {
    case RankCause::kOrder:
      return "order";
    case RankCause::kStarted:
      return "started";
    case RankCause::kInit:
      return "init";
    case RankCause::kMet:
      return "met";
    case RankCause::kEnd:
      return "end";
    case RankCause::kExit:
      return "exit";
    case RankCause::kKill:
      return "kill";
  }
  return "?";
}

void RankRun::to(RankState next, RankCause cause) {
  if (!is_legal(rank_moves(), {state_, cause, next})) {
    const std::string move = cat("rank ", number(), ": ", to_string(state_), " -> ",
                                 to_string(next), " (", to_string(cause), ")");
    check_failed(__FILE__, __LINE__, move.c_str());
  }
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
