// One host of a job: the host's state, and the launcher's objects for the host. HostTable owns this object; the launch,
// the supervisor, the elastic policy, the inspector and the output refer to it. Lives on the launch's loop. The states
// of a host, with the cause of each transition:
//
//            planned
//               | reach
//     .---- connecting ---- end -------.     a spawner starts the agent: SpawnStage
//     |         | connected            |
//     |---- preparing ----- end -------|     the agent checks the host
//     |         | prepared             |
//     |------ held -------- end -------|     the agent waits for the order to start
//     |         | order                |
//     |---- starting ------ end -------|
//     |      |  | started              |
//     |leave |  |                      |
//     |      | running ---- end -------|
//     |      v  | leave                |
//     |---- leaving ------- end -------|     its ranks leave an elastic job
//     |                                v
//     |------------------------------ ending      lost is also reached from here
//     | lost                             | finished, or drop before its ranks were started
//     v                                  v
//    lost                              done
//
// `end` is an order of the launcher, which may repeat it. From preparing on, the agent may also decide to end
// (agent_ends). `finished` may also come from held, starting, running and leaving: if all ranks of a host end by
// themselves, the host is done at once. `drop` may also come from connecting, preparing and held: the launcher then
// closes the link to an agent without ranks.
//
// A host that dies in generation 2 of an elastic job:
// 1. launcher/link/agent_link.cpp: lose() reports that the link is lost, or that the host does not answer.
// 2. launcher/job/supervisor.cpp: on_lost() moves the host to lost, and asks the policy (JobPolicy::survives) whether
//    the job goes on. In a job of constant size the other hosts end.
// 3. launcher/elastic/generations.cpp: host_lost() drops the processes of the host, excludes the host and lets the
//    policy of the program notify the other ranks, whose collectives fail. decide() starts replacement hosts.
// 4. launcher/elastic/next_generation.cpp: form() begins generation 3 when the other ranks have requested places.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/rank_run.h"
#include "launcher/link/agent_link.h"
#include "launcher/plan/hosts.h"
#include "launcher/protocol/host_job.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

enum class HostState : uint8_t {
  kPlanned,
  kConnecting,
  kPreparing,
  kHeld,
  kStarting,
  kRunning,
  kLeaving,
  kEnding,
  kDone,
  kLost
};
enum class HostCause : uint8_t {
  kReach,
  kConnected,
  kPrepared,
  kOrder,
  kStarted,
  kLeave,
  kEnd,
  kAgentEnds,
  kFinished,
  kDrop,
  kLost
};

// The use of the host by an elastic job. Transitions: used <---> leaving; used or leaving ---> gone.
enum class HostUse : uint8_t {
  kUsed,
  kLeaving,  // discovery no longer names the host; it may be used again
  kGone      // the host is lost, or the launcher has ordered its end
};

// Returns whether the diagram above has this transition.
bool may_move(HostState from, HostState to, HostCause cause);
std::string_view to_string(HostState state);  // "planned", "connecting", ...
std::string_view to_string(HostCause cause);

class HostRun {
 public:
  HostRun(int number, Host host) : number_(number), host_(std::move(host)) {}
  HostRun(const HostRun&) = delete;

  int number() const { return number_; }
  const Host& host() const { return host_; }
  const std::string& name() const { return host_.name; }
  std::span<RankRun* const> ranks() const { return ranks_; }

  HostState state() const { return state_; }
  HostCause cause() const { return cause_; }  // cause of the last transition
  // Returns the time at which the state began; while the host connects, at which its stage began.
  Clock::time_point since() const { return since_; }
  // Returns the time at which the launcher abandons the host if the host stays in this state.
  Deadline deadline() const { return deadline_; }
  // Valid in the state kConnecting.
  SpawnStage stage() const { return stage_; }
  // Sets the time by which the ranks of an unreachable host have ended.
  void may_run_until(Clock::time_point latest) { runs_until_ = latest; }
  Clock::time_point runs_until() const { return runs_until_; }
  // Returns whether no more events of this host follow.
  bool is_over() const { return state_ == HostState::kDone || state_ == HostState::kLost; }
  bool has_failed() const { return state_ == HostState::kLost; }
  // Returns whether the ranks got the order to start; true also after the ranks have ended.
  bool had_ranks() const { return furthest_ >= HostState::kStarting; }
  // Returns whether the agent has started the ranks; true also after the ranks have ended.
  bool has_started() const { return furthest_ >= HostState::kRunning; }

  // Ends the launcher if the diagram lacks this transition.
  void to(HostState next, HostCause cause, Deadline deadline = Deadline::never());
  // Moves if the host is in the state `from`. Otherwise, for example after an order to end, does nothing.
  void advance(HostState from, HostState next, HostCause cause,
               Deadline deadline = Deadline::never()) {
    if (state_ == from) to(next, cause, deadline);
  }
  // Sets the next stage of a host that connects.
  void enter(SpawnStage stage, Deadline deadline = Deadline::never());
  void give_up_at(Deadline deadline) { deadline_ = deadline; }

  // Sets the receiver of the agent's events. Call before the host is reached. The receiver outlives the link.
  void set_events(std::unique_ptr<AgentEvents> events) { events_ = std::move(events); }
  AgentEvents& events() const { return *events_; }
  // Returns the link to the agent; null until the agent is prepared. After the host's end, the link remains but is
  // closed.
  AgentLink* link() const { return link_.get(); }
  void hold(std::shared_ptr<AgentLink> link);
  // Returns the seconds since the agent's last answer; 0 if less than two, or if the host has no agent now.
  double silence() const;
  // Returns whether the host has an agent that is not silent.
  bool can_answer() const;
  void close();
  // Destroys the link. Call before the objects to which the link refers are destroyed.
  void release() { link_.reset(); }
  // Call when the agent has started the ranks. Later messages may already have moved the host and its ranks further.
  void started();
  // Call when the agent ends its ranks by itself, because a user, a service manager or a scheduler needs the host.
  void take_away() { is_taken_away_ = true; }
  bool is_taken_away() const { return is_taken_away_; }
  // Stores Finished::is_independent: the agent's verdict whether the ranks work independently of each other.
  void set_independence(uint8_t independence) { independence_ = independence; }
  // Returns Finished::is_independent of the agent's last message; 0 before that message.
  uint8_t independence() const { return independence_; }
  // Elastic jobs only: how the job uses the host, and whether it leaves.
  HostUse use() const { return use_; }
  bool is_leaving() const { return use_ == HostUse::kLeaving; }
  // A host may be gone before its state is ending.
  bool is_gone() const { return use_ == HostUse::kGone; }
  // Ends the launcher if the host is gone: no transition leaves this state.
  void to(HostUse next);
  // Call when the agent will end by itself at `time`; `sentence` is the reason.
  void ends_at(Clock::time_point time, std::string sentence);
  const std::string& why_it_ends() const { return why_it_ends_; }  // empty: the agent stays
  Clock::time_point ends_at() const { return ends_at_; }
  // Returns whether a process on this host is not gone.
  bool has_process() const;
  // Returns whether a process on this host is a rank that is not gone.
  bool has_member() const;

  // Call when a rank has called hvd.init(), and when the ranks of its start have connected. Only one rank of each host
  // reports the connection.
  void joined(const Joined& report);
  StartOrder& order() { return order_; }
  const StartOrder& order() const { return order_; }

 private:
  friend class HostTable;

  const int number_;
  const Host host_;
  std::vector<RankRun*> ranks_;
  HostState state_ = HostState::kPlanned;
  HostState furthest_ = HostState::kPlanned;  // the furthest state so far, at most kRunning
  HostCause cause_ = HostCause::kReach;
  uint8_t independence_ = 0;
  bool is_taken_away_ = false;
  HostUse use_ = HostUse::kUsed;
  std::string why_it_ends_;
  Clock::time_point ends_at_{};
  SpawnStage stage_ = SpawnStage::kResolve;
  Clock::time_point since_ = Clock::now();
  Deadline deadline_ = Deadline::never();
  Clock::time_point runs_until_{};
  StartOrder order_;
  std::unique_ptr<AgentEvents> events_;
  std::shared_ptr<AgentLink> link_;
};

}  // namespace hvd::launcher
