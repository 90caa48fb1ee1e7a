// The part of a job on one host: its state, and what the launcher has of it. HostTable owns it; the launch, the
// supervisor, the elastic policy, the inspector and the output refer to it. Lives on the launch's loop. Its life,
// with the cause of each move:
//
//            planned
//               | reach
//     .---- connecting ---- end -------.     a spawner brings the agent there: SpawnStage
//     |         | connected            |
//     |---- preparing ----- end -------|     the agent checks its part of the job
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
// `end` is an order of the launcher, which may repeat it, or, from preparing on, a decision of the agent itself
// (agent_ends). `finished` also comes from held to leaving: ranks that all end by themselves make their host done at
// once. `drop` comes from connecting to held, too: the launcher closes the link to an agent that has no ranks yet.
//
// A host that dies in generation 2 of an elastic job:
// 1. launcher/link/agent_link.cpp: lose() reports that the link is lost, or that the host does not answer.
// 2. launcher/job/supervisor.cpp: on_lost() moves the host to lost, and asks the policy (JobPolicy::survives) whether
//    the job goes on. In a job of constant size the other hosts end.
// 3. launcher/elastic/generations.cpp: host_lost() drops the processes of the host, excludes the host and lets the
//    policy of the program notify the other ranks, whose collectives fail. decide() starts the hosts that replace it.
// 4. launcher/elastic/next_generation.cpp: form() begins generation 3 when the other ranks have asked for their places.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// Whether an elastic job uses the host: used <---> leaving, and both ---> gone.
enum class HostUse : uint8_t {
  kUsed,
  kLeaving,  // no longer among the discovered ones; may be used again
  kGone      // it is lost, or its end was ordered
};

// Whether the drawing has this move.
bool may_move(HostState from, HostState to, HostCause cause);
std::string_view to_string(HostState state);  // "planned", "connecting", ...
std::string_view to_string(HostCause cause);

class HostRun {
 public:
  // `host` outlives this object.
  HostRun(int number, const Host& host) : number_(number), host_(host) {}
  HostRun(const HostRun&) = delete;

  int number() const { return number_; }
  const Host& host() const { return host_; }
  const std::string& name() const { return host_.name; }
  std::span<RankRun* const> ranks() const { return ranks_; }

  HostState state() const { return state_; }
  HostCause cause() const { return cause_; }  // of the last move
  // The beginning of the state, or of its stage while it connects.
  Clock::time_point since() const { return since_; }
  // When the launcher gives the host up if it stays in this state.
  Deadline deadline() const { return deadline_; }
  // While it connects.
  SpawnStage stage() const { return stage_; }
  // The host is lost, but may only be out of reach: its ranks have ended at this time at the latest.
  void may_run_until(Clock::time_point latest) { runs_until_ = latest; }
  Clock::time_point runs_until() const { return runs_until_; }
  // No event of the host follows.
  bool is_over() const { return state_ == HostState::kDone || state_ == HostState::kLost; }
  bool has_failed() const { return state_ == HostState::kLost; }
  // The ranks have got the order to start. They may have ended since.
  bool had_ranks() const { return furthest_ >= HostState::kStarting; }
  // The agent has started the ranks. They may have ended since.
  bool has_started() const { return furthest_ >= HostState::kRunning; }

  // A move that is not in the drawing ends the launcher.
  void to(HostState next, HostCause cause, Deadline deadline = Deadline::never());
  // Moves if the host is in the state `from`; its end may have been ordered since.
  void advance(HostState from, HostState next, HostCause cause,
               Deadline deadline = Deadline::never()) {
    if (state_ == from) to(next, cause, deadline);
  }
  // The next stage of a host that connects.
  void enter(SpawnStage stage, Deadline deadline = Deadline::never());
  void give_up_at(Deadline deadline) { deadline_ = deadline; }

  // The receiver of the agent's events. Set before the host is reached; outlives the link.
  void set_events(std::unique_ptr<AgentEvents> events) { events_ = std::move(events); }
  AgentEvents& events() const { return *events_; }
  // The link to the agent once it is prepared; null before. It stays, closed, when the host is over.
  AgentLink* link() const { return link_.get(); }
  void hold(std::unique_ptr<AgentLink> link);
  // The seconds for which the agent has not answered; 0: it answers, or the host has no agent now.
  double silence() const;
  // Whether the agent runs, and is not silent.
  bool can_answer() const;
  // Closes the link, if there is one.
  void close();
  // Destroys the link, before the objects to which it refers are destroyed.
  void release() { link_.reset(); }
  // The agent has started the ranks. Later messages of the agent may have moved the host and its ranks on.
  void started();
  // The agent has ended its ranks by itself: a user, a service manager or a scheduler wants the host.
  void take_away() { is_taken_away_ = true; }
  bool is_taken_away() const { return is_taken_away_; }
  // The agent has seen no sign that the ranks know of each other.
  void set_independence(uint8_t independence) { independence_ = independence; }
  // As in the agent's last message.
  uint8_t independence() const { return independence_; }
  // In an elastic job.
  HostUse use() const { return use_; }
  bool is_leaving() const { return use_ == HostUse::kLeaving; }
  // It may be gone before its state is ending.
  bool is_gone() const { return use_ == HostUse::kGone; }
  // A host that is gone stays so: another move ends the launcher.
  void to(HostUse next);
  // Its agent ends by itself at this time, for the reason that the sentence names.
  void ends_at(Clock::time_point time, std::string sentence);
  const std::string& why_it_ends() const { return why_it_ends_; }  // empty: it does not
  Clock::time_point ends_at() const { return ends_at_; }
  // Whether a process here is not gone.
  bool has_process() const;
  // Whether one of them is a rank.
  bool has_member() const;

  // A rank has called hvd.init(), or the ranks of its start have met: one rank of each host reports it.
  void joined(const Joined& report);
  // Data that the ranks get when they start.
  StartOrder& order() { return order_; }
  const StartOrder& order() const { return order_; }

 private:
  friend class HostTable;

  const int number_;
  const Host& host_;
  std::vector<RankRun*> ranks_;
  HostState state_ = HostState::kPlanned;
  HostState furthest_ = HostState::kPlanned;  // of the states of its start
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
  std::unique_ptr<AgentLink> link_;
};

}  // namespace hvd::launcher
