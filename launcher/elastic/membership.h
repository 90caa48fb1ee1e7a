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

// Identifies one process in the life of a job. A process that is started again is another one.
using Incarnation = int;

// A process on a slot of its host. The slot is its local rank in the generation.
struct Member {
  std::string host;
  int slot = 0;
  Incarnation incarnation = 0;
  bool is_new = false;  // it was no member of the previous generation

  friend bool operator==(const Member&, const Member&) = default;
};

struct Generation {
  int32_t number = 0;
  std::vector<Member> members;  // by rank; the members of a host are consecutive, by slot
  // Members of the previous generation that run and have no place in this one, in their order.
  std::vector<Member> removed;

  int size() const { return static_cast<int>(members.size()); }
  bool has_new() const;
};

// A process that runs and was not a member yet.
struct StartedProcess {
  int slot = 0;  // the one for which it was started
  Incarnation incarnation = 0;
};

// A host on which ranks may run: discovered, reachable, and not excluded after a failure.
struct UsableHost {
  // Has as many slots as the generation may have members there: at most the surviving members and `started`.
  Host host;
  std::vector<StartedProcess> started = {};  // for the slots of the others, in this order
};

struct MembershipChange {
  std::vector<UsableHost> usable;  // in the order of discovery
  int min = 1;  // fewest members; -np instead of --min-np for the first generation
  std::optional<int> max;
  int32_t number = 1;  // the next generation has this one
  // The newest generation that was complete; no members: there was none. `is_new` and `removed` are not
  // read.
  Generation previous;
  std::set<Incarnation> ended;    // members of `previous` that have ended
  std::set<Incarnation> leaving;  // members of `previous` that run, and must have no place
};

// The job pauses, because the hosts have too few slots.
struct TooFew {
  int slots = 0;
  int min = 0;
  friend bool operator==(const TooFew&, const TooFew&) = default;
};
// The job ends, because no process has its state.
struct NoSurvivor {
  friend bool operator==(const NoSurvivor&, const NoSurvivor&) = default;
};

using MembershipPlan = std::variant<Generation, TooFew, NoSurvivor>;

// The rules:
// - Hosts keep their order. A host without a surviving process is appended, in the order of discovery.
// - Survivors come first: a process is never ended for one that was no member. Above `max` the last
//   slots of the newest hosts are left empty.
// - A survivor keeps its slot as long as its host has that many members, else it takes a free one. When
//   a host has fewer slots, its highest slots go first.
// - Rank 0 is a survivor. If slot 0 of the first host is free, its lowest survivor takes it.
MembershipPlan plan_membership(const MembershipChange& change);

}  // namespace hvd::launcher
