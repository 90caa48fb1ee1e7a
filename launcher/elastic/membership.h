// Plans the next generation of an elastic job: the processes that are its members, and their ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/plan/hosts.h"
#include "launcher/plan/slot_plan.h"

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
  SlotPlan plan;                // local and cross ranks; a host's slots are those of its members
  // Members of the previous generation that run and have no place in this one, in their order.
  std::vector<Member> removed;

  int size() const { return static_cast<int>(members.size()); }
  bool has_new() const;
};

// A process that runs and was no member yet.
struct StartedProcess {
  int slot = 0;  // the one for which it was started
  Incarnation incarnation = 0;
};

// A host on which ranks may run: discovered, reachable, and not excluded after a failure.
struct UsableHost {
  Host host;  // has as many slots as the generation may have members there
  // Used for free slots, in this order, before new incarnations are made.
  std::vector<StartedProcess> started = {};
};

struct MembershipChange {
  std::vector<UsableHost> usable;  // in the order of discovery
  int min = 1;  // fewest members; -np instead of --min-np for the first generation
  std::optional<int> max;
  int32_t number = 1;  // the next generation has this one
  // The first number for members that are to be started.
  Incarnation next_incarnation = 1;
  // The newest generation that was complete; no members: there was none. `is_new` and `removed` are not
  // read.
  Generation previous;
  std::set<Incarnation> ended;    // members of `previous` that run no more
  std::set<Incarnation> leaving;  // members of `previous` that run, and must have no place
  // Members wait for a new generation, as after a failed collective: the same members are one, too.
  bool is_needed = false;
};

// The job pauses: there are not enough slots.
struct TooFew {
  int slots = 0;
  int min = 0;
  friend bool operator==(const TooFew&, const TooFew&) = default;
};
// The job ends: no process has its state.
struct NoSurvivor {
  friend bool operator==(const NoSurvivor&, const NoSurvivor&) = default;
};
// The members and their ranks stay as they are.
struct Unchanged {
  friend bool operator==(const Unchanged&, const Unchanged&) = default;
};

using MembershipPlan = std::variant<Generation, Unchanged, TooFew, NoSurvivor>;

// The rules:
// - Hosts keep their order. A host without a surviving process is appended, in the order of discovery.
// - Survivors come first: a process is never ended for one that would be started. Above `max` the last
//   slots of the newest hosts are left empty.
// - A survivor keeps its slot as long as its host has that many members, else it takes a free one. When
//   a host has fewer slots, its highest slots go first.
// - Rank 0 is a survivor. If slot 0 of the first host is free, its lowest survivor takes it.
MembershipPlan plan_membership(const MembershipChange& change);

}  // namespace hvd::launcher
