#include "launcher/hosts/host_run.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr HostMove kHostMoves[] = {
    {HostState::kPlanned, HostCause::kReach, HostState::kConnecting},
    {HostState::kConnecting, HostCause::kConnected, HostState::kPreparing},
    {HostState::kPreparing, HostCause::kPrepared, HostState::kHeld},
    {HostState::kHeld, HostCause::kOrder, HostState::kStarting},
    {HostState::kStarting, HostCause::kStarted, HostState::kRunning},
    {HostState::kStarting, HostCause::kLeave, HostState::kLeaving},
    {HostState::kRunning, HostCause::kLeave, HostState::kLeaving},
    {HostState::kConnecting, HostCause::kEnd, HostState::kEnding},
    {HostState::kPreparing, HostCause::kEnd, HostState::kEnding},
    {HostState::kHeld, HostCause::kEnd, HostState::kEnding},
    {HostState::kStarting, HostCause::kEnd, HostState::kEnding},
    {HostState::kRunning, HostCause::kEnd, HostState::kEnding},
    {HostState::kLeaving, HostCause::kEnd, HostState::kEnding},
    {HostState::kEnding, HostCause::kEnd, HostState::kEnding},
    {HostState::kPreparing, HostCause::kAgentEnds, HostState::kEnding},
    {HostState::kHeld, HostCause::kAgentEnds, HostState::kEnding},
    {HostState::kStarting, HostCause::kAgentEnds, HostState::kEnding},
    {HostState::kRunning, HostCause::kAgentEnds, HostState::kEnding},
    {HostState::kLeaving, HostCause::kAgentEnds, HostState::kEnding},
    {HostState::kHeld, HostCause::kFinished, HostState::kDone},
    {HostState::kStarting, HostCause::kFinished, HostState::kDone},
    {HostState::kRunning, HostCause::kFinished, HostState::kDone},
    {HostState::kLeaving, HostCause::kFinished, HostState::kDone},
    {HostState::kEnding, HostCause::kFinished, HostState::kDone},
    {HostState::kConnecting, HostCause::kDrop, HostState::kDone},
    {HostState::kPreparing, HostCause::kDrop, HostState::kDone},
    {HostState::kHeld, HostCause::kDrop, HostState::kDone},
    {HostState::kEnding, HostCause::kDrop, HostState::kDone},
    {HostState::kConnecting, HostCause::kLost, HostState::kLost},
    {HostState::kPreparing, HostCause::kLost, HostState::kLost},
    {HostState::kHeld, HostCause::kLost, HostState::kLost},
    {HostState::kStarting, HostCause::kLost, HostState::kLost},
    {HostState::kRunning, HostCause::kLost, HostState::kLost},
    {HostState::kLeaving, HostCause::kLost, HostState::kLost},
    {HostState::kEnding, HostCause::kLost, HostState::kLost},
};

}  // namespace

std::span<const HostMove> host_moves() { return kHostMoves; }

std::string_view to_string(HostState state) {
  switch (state) {
    case HostState::kPlanned:
      return "planned";
    case HostState::kConnecting:
      return "connecting";
    case HostState::kPreparing:
      return "preparing";
    case HostState::kHeld:
      return "held";
    case HostState::kStarting:
      return "starting";
    case HostState::kRunning:
      return "running";
    case HostState::kLeaving:
      return "leaving";
    case HostState::kEnding:
      return "ending";
    case HostState::kDone:
      return "done";
    case HostState::kLost:
      return "lost";
  }
  return "?";
}

std::string_view to_string(HostCause cause) {
  switch (cause) {
    case HostCause::kReach:
      return "reach";
    case HostCause::kConnected:
      return "connected";
    case HostCause::kPrepared:
      return "prepared";
    case HostCause::kOrder:
      return "order";
    case HostCause::kStarted:
      return "started";
    case HostCause::kLeave:
      return "leave";
    case HostCause::kEnd:
      return "end";
    case HostCause::kAgentEnds:
      return "agent_ends";
    case HostCause::kFinished:
      return "finished";
    case HostCause::kDrop:
      return "drop";
    case HostCause::kLost:
      return "lost";
  }
  return "?";
}

void HostRun::to(HostState next, HostCause cause, Deadline deadline) {
  if (!is_legal(host_moves(), {state_, cause, next})) {
    const std::string move = cat("host ", name(), ": ", to_string(state_), " -> ", to_string(next),
                                 " (", to_string(cause), ")");
    check_failed(__FILE__, __LINE__, move.c_str());
  }
  if (next != state_) since_ = Clock::now();
  if (next <= HostState::kRunning) furthest_ = next;
  state_ = next;
  cause_ = cause;
  deadline_ = deadline;
}

void HostRun::enter(SpawnStage stage, Deadline deadline) {
  if (state_ != HostState::kConnecting) return;
  stage_ = stage;
  since_ = Clock::now();
  deadline_ = deadline;
}

void HostRun::hold(std::unique_ptr<AgentLink> link) {
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

void HostRun::close() {
  if (link_) link_->close();
}

}  // namespace hvd::launcher
