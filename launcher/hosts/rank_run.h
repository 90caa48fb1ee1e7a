// One rank of a job in the launcher: a process on a slot of a host. HostTable owns this object. The states of a rank,
// with the cause of each transition:
//
//     planned ----------.
//        | order        |
//     starting ---------|
//        | started      | end (of this rank alone)
//     running ----------|
//        | init         |        Reports may arrive early: a rank in starting or running may move to in_init or
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
// `exit` and `kill` come from each state after planned. A rank with an order to end before its host runs gets the order
// as soon as the host runs. A rank keeps its state when its host is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Returns whether the diagram above has this transition.
bool may_move(RankState from, RankState to, RankCause cause);
std::string_view to_string(RankState state);  // "planned", "in_init", ...
std::string_view to_string(RankCause cause);

// In an elastic job, each process also has a place in the generations:
//
//     planned ---> held ---> starting ---> asking <---> member      starting <---> member: while ranks are
//        '----------------------^             ^                     assumed (launcher/elastic/elastic_core.h)
//                                             '-------> preparing
//
// Each state may move to gone. A process in asking may ask again.
enum class PlaceState : uint8_t {
  kPlanned,    // the host's agent has not started
  kHeld,       // the agent is ready; the process is not started while ranks are assumed
  kStarting,   // the process has not requested a place
  kAsking,     // the process has requested its next place, and waits for the place
  kPreparing,  // hvd.init has returned a provisional place; no final request yet
  kMember,     // the process is a rank of the current generation
  kGone        // the process has ended or is being ended
};

// Returns whether the diagram above has this transition.
bool may_move(PlaceState from, PlaceState to);
std::string_view to_string(PlaceState state);  // "planned", "held", ...

// The state of a process's last call of hvd.elastic.run.
enum class ElasticCall : uint8_t { kNone, kInside, kReturned, kRaised };

// The place requests of a process. launcher/elastic writes this record.
struct PlaceRecord {
  int64_t request = 0;
  int32_t generation = -1;  // the last generation whose ranks the process has met
  bool is_removed = false;  // a user has removed the process: it leaves at the next commit
  // The time at which the process got its order to start or its provisional place; unset: the job began with the
  // process.
  Clock::time_point since{};
  // The place that hvd.init has returned, until the process has met the other ranks.
  std::optional<rendezvous::Place> provisional = std::nullopt;
  bool takes_any_place = false;  // the process waits in hvd.elastic.run
  ElasticCall call = ElasticCall::kNone;

  bool is_in_run() const { return call == ElasticCall::kInside; }
  bool has_returned() const { return call == ElasticCall::kReturned; }
};

// How long a rank has waited for other ranks in its training steps, and other ranks for it.
struct RankWaits {
  double waited_seconds = 0;  // sum over the steps of the rank's longest wait for an operation
  double late_seconds =
      0;  // sum over the steps: the longest wait of any rank minus this rank's wait
  // The rank was late in most of the last steps.
  bool is_straggler = false;
  double late_now = 0;  // median of the last steps, in seconds
};

class RankRun {
 public:
  // `host` outlives this object.
  RankRun(HostRun& host, const Slot& slot) : host_(host), slot_(slot) {}
  RankRun(const RankRun&) = delete;

  // Returns the number of the process in the table.
  int number() const { return slot_.rank; }
  // Returns the rank in the job, or -1: in an elastic job, only the members of the current generation have ranks.
  int rank() const { return rank_; }
  bool is_member() const { return rank_ >= 0; }
  // Returns "rank 3 on host b"; for a process that is not a member: "process 7 on host b".
  std::string describe() const;
  const Slot& slot() const { return slot_; }
  HostRun& host() const { return host_; }
  RankState state() const { return state_; }
  // Returns the exit of the process. Valid after its end.
  const RankExit& exit() const { return exit_; }
  bool is_over() const { return state_ == RankState::kEnded || state_ == RankState::kKilled; }
  // Returns whether the process has ended with exit code 0.
  bool has_succeeded() const {
    return state_ == RankState::kEnded && exit_.code == 0 && exit_.signal == 0;
  }

  // Ends the launcher if the diagram lacks this transition.
  void to(RankState next, RankCause cause);
  void advance(RankState from, RankState next, RankCause cause) {
    if (state_ == from) to(next, cause);
  }
  // Call when the rank has called hvd.init() in the start of this name. Does nothing if the rank is ending.
  void enter_init(const std::string& start);
  const std::string& start() const { return start_; }
  // Call when the ranks of this rank's start have connected.
  void enter_job();
  void ended(const RankExit& exit);
  // Call when the rank has joined the job's world. It may join other worlds later.
  void enter_world() { has_been_in_world_ = true; }
  bool has_been_in_world() const { return has_been_in_world_; }

  // Returns the place of the process in the generations. Elastic jobs only.
  PlaceState place_state() const { return place_state_; }
  bool is_gone() const { return place_state_ == PlaceState::kGone; }
  // Returns whether the process is still expected to request its first place.
  bool is_coming() const {
    return place_state_ == PlaceState::kPlanned || place_state_ == PlaceState::kStarting;
  }
  // Returns whether the process was a rank of a generation whose ranks have connected, as far as the launcher knows.
  bool has_met() const { return place_.generation >= 0; }
  // Ends the launcher if the diagram lacks this transition.
  void to(PlaceState next);
  void advance(PlaceState from, PlaceState next) {
    if (place_state_ == from) to(next);
  }
  // Moves to gone. Returns false if the process was gone already.
  bool go();
  PlaceRecord& place() { return place_; }
  const PlaceRecord& place() const { return place_; }

  // nullopt: unknown.
  void set_waits(const std::optional<RankWaits>& waits) { waits_ = waits; }
  const std::optional<RankWaits>& waits() const { return waits_; }

  // Sets the differences between the launcher's variables and those of the rank's program.
  void set_changes(std::vector<VariableChange> changes) { changes_ = std::move(changes); }
  const std::vector<VariableChange>& changes() const { return changes_; }
  // Returns whether the agent has read the variables of the rank's program.
  bool knows_changes() const { return changes_.empty() || !changes_.front().name.empty(); }

 private:
  friend class HostTable;

  HostRun& host_;
  const Slot slot_;
  int rank_ = slot_.rank;
  RankState state_ = RankState::kPlanned;
  RankExit exit_;
  std::string start_;
  bool has_been_in_world_ = false;
  PlaceState place_state_ = PlaceState::kPlanned;
  PlaceRecord place_;
  std::optional<RankWaits> waits_;
  std::vector<VariableChange> changes_ = std::vector<VariableChange>(1);
};

}  // namespace hvd::launcher
