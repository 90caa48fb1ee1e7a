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

#include "base/clock.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"
#include "rendezvous/store/membership.h"

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

// In an elastic job, the place of the process in the generations, beside its state:
//
//     planned ---> held ---> starting ---> asking <---> member      starting <---> member: while ranks are
//        '----------------------^             ^                     assumed (launcher/elastic/job_stage.h)
//                                             '-------> preparing
//
// Each of them may move to gone. A process that asks may ask again.
enum class PlaceState : uint8_t {
  kPlanned,    // its agent is not there yet
  kHeld,       // its agent is there, but the program might not wait for its place in hvd.init
  kStarting,   // it has not asked for a place
  kAsking,     // it has asked for its next place, and waits for it
  kPreparing,  // its hvd.init has returned a provisional place; it has not asked again
  kMember,     // it is a rank of the present generation
  kGone        // it has ended or is being ended
};

// Whether the drawing has this move.
bool may_move(PlaceState from, PlaceState to);
std::string_view to_string(PlaceState state);  // "planned", "held", ...

// Where a process is in its last call of hvd.elastic.run.
enum class ElasticCall : uint8_t { kNone, kInside, kReturned, kRaised };

// The requests of a process for its places. launcher/elastic writes it.
struct PlaceRecord {
  int64_t request = 0;
  int32_t generation = -1;  // the last one whose ranks the process has met
  bool is_removed = false;  // a user has removed it: it leaves at the next commit
  // Its order to start, or its provisional place; unset: the job began with it.
  Clock::time_point since{};
  // Which its hvd.init has returned, until it has met the other ranks.
  std::optional<rendezvous::Place> provisional = std::nullopt;
  bool takes_any_place = false;  // it waits in hvd.elastic.run
  ElasticCall call = ElasticCall::kNone;

  bool is_in_run() const { return call == ElasticCall::kInside; }
  bool has_returned() const { return call == ElasticCall::kReturned; }
};

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

  // In the table.
  int number() const { return slot_.rank; }
  // In the job, or -1: in an elastic job, only the members of the present generation are ranks.
  int rank() const { return rank_; }
  bool is_member() const { return rank_ >= 0; }
  // "rank 3 on host b", or "process 7 on host b" if it is no member.
  std::string describe() const;
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

  // In an elastic job.
  PlaceState place_state() const { return place_state_; }
  bool is_gone() const { return place_state_ == PlaceState::kGone; }
  // It is going to ask for its first place.
  bool is_coming() const {
    return place_state_ == PlaceState::kPlanned || place_state_ == PlaceState::kStarting;
  }
  // Whether it was a rank of a generation whose ranks have met, as far as the launcher knows.
  bool has_met() const { return place_.generation >= 0; }
  // A move that is not in the drawing ends the launcher.
  void to(PlaceState next);
  void advance(PlaceState from, PlaceState next) {
    if (place_state_ == from) to(next);
  }
  // Returns whether it was not gone before.
  bool go();
  PlaceRecord& place() { return place_; }
  const PlaceRecord& place() const { return place_; }

  // Nothing while it is not known. StragglerWatch sets it.
  void set_waits(const std::optional<RankWaits>& waits) { waits_ = waits; }
  const std::optional<RankWaits>& waits() const { return waits_; }

 private:
  friend class HostTable;

  HostRun& host_;
  const Slot& slot_;
  int rank_ = slot_.rank;
  RankState state_ = RankState::kPlanned;
  RankExit exit_;
  std::string start_;
  bool has_been_in_world_ = false;
  PlaceState place_state_ = PlaceState::kPlanned;
  PlaceRecord place_;
  std::optional<RankWaits> waits_;
};

}  // namespace hvd::launcher
