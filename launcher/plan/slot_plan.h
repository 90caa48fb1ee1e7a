// The plan of a job: the host and the local rank of each rank. Pure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

struct Slot {
  int rank = 0;
  int host = 0;        // index in the plan's hosts
  int local_rank = 0;  // number among the ranks of the same host
  int local_size = 0;
  int cross_rank = 0;  // index of the rank's host among the hosts with this local_rank
  int cross_size = 0;  // number of such hosts
};

// Addresses of hosts and slots stay valid when others are added.
struct SlotPlan {
  std::deque<Host> hosts;  // hosts with ranks, in the given order
  std::deque<Slot> slots;  // by rank; the ranks of a host are consecutive

  int size() const { return static_cast<int>(slots.size()); }
};

// Fills the hosts in order, up to `num_proc` ranks, or all slots without `num_proc`. If there are too few slots, the
// error has a table of the hosts and their slots.
Result<SlotPlan> plan_slots(const std::vector<Host>& hosts, std::optional<int> num_proc);

// Moves the last `count` hosts into the result, as spare hosts (--spares). Fails if no host would remain.
Result<std::vector<Host>> take_spares(std::vector<Host>& hosts, size_t count);

// Returns whether a spare has enough slots for this host's ranks (`host`: its index in the plan).
bool can_replace(const SlotPlan& plan, int host, const std::vector<Host>& spares);

struct Replacement {
  std::vector<std::string> sentences;     // one per replaced host
  std::map<int, std::string> unreplaced;  // the other failed hosts, each with a sentence
};

// Moves the ranks of each failed host (its index in the plan) to the first spare with enough slots. Removes this spare
// from `spares`.
Replacement replace_hosts(SlotPlan& plan, const std::vector<int>& failed,
                          std::vector<Host>& spares);

}  // namespace hvd::launcher
