// Plans the next generation of an elastic job: the processes that are its members, and their ranks. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "launcher/allocation/host_pool.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

// Identifies one process of a job. A process that is started again gets a new number.
using Incarnation = int;

// A process in a slot of its host. The slot is its local rank in the generation.
struct Member {
  std::string host;
  int slot = 0;
  Incarnation incarnation = 0;
  bool is_new = false;  // the process was not a member of the previous generation

  friend bool operator==(const Member&, const Member&) = default;
};

struct Generation {
  int32_t number = 0;
  std::vector<Member> members;  // by rank; members of a host are consecutive, by slot
  // Members of the previous generation that run but have no place in this generation, in their order.
  std::vector<Member> removed;

  int size() const { return static_cast<int>(members.size()); }
  bool has_new() const;
};

// A running process that is not a member yet.
struct StartedProcess {
  int slot = 0;  // the slot for which it was started
  Incarnation incarnation = 0;
};

// A host on which ranks may run: named by discovery, reachable and not excluded after a failure.
struct UsableHost {
  // Its `slots` is the maximum number of members there: at most the surviving members plus `started`.
  Host host;
  // Processes for the slots without a survivor, in this order.
  std::vector<StartedProcess> started = {};
};

struct MembershipChange {
  std::vector<UsableHost> usable;  // in the order of discovery
  int min = 1;  // minimum number of members; for the first generation -np, later --min-np
  std::optional<int> max;
  int32_t number = 1;  // the number of the next generation
  // The newest complete generation; without members: none has begun. `is_new` and `removed` are not read.
  Generation previous;
  std::set<Incarnation> ended;    // members of `previous` that have ended
  std::set<Incarnation> leaving;  // members of `previous` that run but must not get a place
};

// A plan that pauses the job, because the hosts have too few slots.
struct TooFew {
  int slots = 0;
  int min = 0;
  friend bool operator==(const TooFew&, const TooFew&) = default;
};
// A plan that ends the job, because no process has the training state.
struct NoSurvivor {
  friend bool operator==(const NoSurvivor&, const NoSurvivor&) = default;
};

using MembershipPlan = std::variant<Generation, TooFew, NoSurvivor>;

// Returns the plan for a change. The rules:
// - Hosts keep their order. Hosts without a surviving process are appended, in the order of discovery.
// - Survivors have priority: a process is never ended in favour of a new process. If there are more slots than
//   `max`, the last slots of the newest hosts remain empty.
// - A survivor keeps its slot if the number of the slot is less than the number of members on its host. Otherwise, it
//   takes a free slot. If a host has fewer slots than before, its highest slots are dropped first.
// - Rank 0 is a survivor. If slot 0 of the first host is free, the host's lowest survivor takes it.
MembershipPlan plan_membership(const MembershipChange& change);

// The limits and the number of the next generation.
struct GenerationRules {
  int least = 1;
  std::optional<int> most;
  int32_t number = 0;  // the number of the next generation
};

// Plans the next generation. `current`: the current generation, if any. `takes`: returns whether the next generation
// may include this process.
MembershipPlan plan_generation(const HostTable& hosts, const std::optional<Generation>& current,
                               const HostPool& pool, const GenerationRules& rules,
                               const std::function<bool(const RankRun& process)>& takes);

rendezvous::Generation record_of(const Generation& generation);
std::map<int, rendezvous::PlaceAnswer> answers_by_process(const Generation& generation);

// The planned next generation, with processes that are ready to join it, while the ranks train. Each joining process
// gets its place and prepares. When all of them have requested their final places, the ranks are notified. The plan is
// void when ranks or joining processes end or must leave. ElasticCore owns this object. No I/O, no clock.
class JoiningPlan {
 public:
  explicit JoiningPlan(HostTable& hosts) : hosts_(hosts) {}

  // Returns the planned generation; nullptr: no plan.
  const Generation* generation() const { return generation_ ? &*generation_ : nullptr; }
  // Returns whether all new processes of the plan have requested their final places. The generation may then begin.
  bool is_prepared() const;
  // Returns the new processes of the plan that are alive but not ranks yet.
  std::set<int> newcomers() const;
  void set(std::optional<Generation> generation) { generation_ = std::move(generation); }
  void drop() { generation_.reset(); }
  // Returns the provisional places of the new processes that have none yet, and moves these processes to kPreparing.
  std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> answer_places(Clock::time_point now);

 private:
  HostTable& hosts_;
  std::optional<Generation> generation_;
};

// Returns nullopt unless the plan is a generation with new processes.
std::optional<Generation> with_newcomers(MembershipPlan plan);

// Returns the processes to which this generation gives no place, or another place than hvd.init has returned. Such a
// process must start again, because a program can change its place only within hvd.elastic.run.
std::vector<RankRun*> misplaced(HostTable& hosts, const std::set<int>& processes,
                                const Generation& generation);

}  // namespace hvd::launcher
