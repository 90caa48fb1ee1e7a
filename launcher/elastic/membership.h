// Plans the next generation of an elastic job: the processes that are its members, and their ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/plan/hosts.h"

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

// A process that runs but was not a member yet.
struct StartedProcess {
  int slot = 0;  // the slot for which it was started
  Incarnation incarnation = 0;
};

// A host on which ranks may run: discovered, reachable and not excluded after a failure.
struct UsableHost {
  // The host. Its `slots` is the maximum number of members there: at most the surviving members plus `started`.
  Host host;
  // Processes for the slots without a survivor, in this order.
  std::vector<StartedProcess> started = {};
};

struct MembershipChange {
  std::vector<UsableHost> usable;  // in the order of discovery
  int min = 1;  // minimum number of members; for the first generation -np, later --min-np
  std::optional<int> max;
  int32_t number = 1;  // the number of the next generation
  // The newest complete generation; no members: no generation has begun. The flags `is_new` and the list
  // `removed` are not read.
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
// - A survivor keeps its slot if its host has more members than the number of the slot; otherwise it takes a free
//   slot. If a host has fewer slots than before, its highest slots are dropped first.
// - Rank 0 is a survivor. If slot 0 of the first host is free, the host's lowest survivor takes it.
MembershipPlan plan_membership(const MembershipChange& change);

}  // namespace hvd::launcher
