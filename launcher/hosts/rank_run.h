// One rank of a job as the launcher sees it: a process on a slot of a host. HostTable owns it. Its life, with the
// cause of each move:
//
//     planned ----------.
//        | order        |
//     starting ---------|
//        | started      | end (of this rank alone)
//     running ----------|
//        | init         |        Reports may come early: a rank in starting or running may move to in_init or
//     in_init ----------|        in_job. A rank in_job that calls hvd.init() again is in_init again.
//        | met          |
//     in_job -----------|
//        |              v
//        |            ending
//        |              |
//        '------.-------'
//               |-- exit ---> ended    by itself, or by a signal of the agent
//               '-- kill ---> killed   by SIGKILL, after the grace period
//
// `exit` and `kill` come from each state after planned. A rank that is to end before its host runs gets the order as
// soon as the host runs. A rank stays in its state when its host is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

class HostRun;

enum class RankState : uint8_t {
  kPlanned,
  kStarting,
  kRunning,
  kInInit,
  kInJob,
  kEnding,
  kEnded,
  kKilled
};
enum class RankCause : uint8_t { kOrder, kStarted, kInit, kMet, kEnd, kExit, kKill };

// Whether the drawing has this move.
bool may_move(RankState from, RankState to, RankCause cause);
std::string_view to_string(RankState state);  // "planned", "in_init", ...
std::string_view to_string(RankCause cause);

// How long a rank has waited for others in its training steps, and others for it.
struct RankWaits {
  double waited_seconds = 0;  // in each step the longest wait of an operation
  double late_seconds = 0;    // in each step the longest wait of any rank, less its own
  // The rank is late in most of the last steps.
  bool is_straggler = false;
  double late_now = 0;  // seconds in the median of the last steps
};

class RankRun {
 public:
  // `host` and `slot` outlive this object.
  RankRun(HostRun& host, const Slot& slot) : host_(host), slot_(slot) {}
  RankRun(const RankRun&) = delete;

  int number() const { return slot_.rank; }
  const Slot& slot() const { return slot_; }
  HostRun& host() const { return host_; }
  RankState state() const { return state_; }
  // How it ended; once it has.
  const RankExit& exit() const { return exit_; }
  bool is_over() const { return state_ == RankState::kEnded || state_ == RankState::kKilled; }
  // It has ended with exit code 0.
  bool has_succeeded() const {
    return state_ == RankState::kEnded && exit_.code == 0 && exit_.signal == 0;
  }

  // A move that is not in the drawing ends the launcher.
  void to(RankState next, RankCause cause);
  // Moves if the rank is in the state `from`.
  void advance(RankState from, RankState next, RankCause cause) {
    if (state_ == from) to(next, cause);
  }
  // The rank has called hvd.init() in a start of this name. An ending rank stays so.
  void enter_init(const std::string& start);
  const std::string& start() const { return start_; }
  // The ranks of its start have met.
  void enter_job();
  void ended(const RankExit& exit);
  // The rank has joined the world of the job. It may join others afterwards, beside its work.
  void enter_world() { has_been_in_world_ = true; }
  bool has_been_in_world() const { return has_been_in_world_; }
  // Nothing while it is not known. StragglerWatch sets it.
  void set_waits(const std::optional<RankWaits>& waits) { waits_ = waits; }
  const std::optional<RankWaits>& waits() const { return waits_; }

 private:
  HostRun& host_;
  const Slot& slot_;
  RankState state_ = RankState::kPlanned;
  RankExit exit_;
  std::string start_;
  bool has_been_in_world_ = false;
  std::optional<RankWaits> waits_;
};

}  // namespace hvd::launcher
