// Holds back spare hosts (--spares), and replaces failed hosts by them. The code of a command takes the spares before
// the job starts; attempts.cpp replaces failed hosts before it launches the job again. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Moves the last `count` hosts into the result. Fails if no host would remain.
Result<std::vector<Host>> take_spares(std::vector<Host>& hosts, size_t count);

// Returns whether a spare has enough slots for this host's ranks (`host`: its index in the plan).
bool can_replace(const SlotPlan& plan, int host, const std::vector<Host>& spares);

struct Replacement {
  std::vector<std::string> sentences;     // one per replaced host
  std::map<int, std::string> unreplaced;  // the other failed hosts, each with a sentence
};

// Assigns the ranks of each failed host (its index in the plan) to the first spare with enough
// slots, and removes that spare from `spares`.
Replacement replace_hosts(SlotPlan& plan, const std::vector<int>& failed,
                          std::vector<Host>& spares);

}  // namespace hvd::launcher
