// Holds back spare hosts (--spares), and puts them in place of failed hosts. The command takes the spares before
// the job starts; attempts.cpp replaces failed hosts before it starts the job again. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Moves the last `count` hosts into the result. An error if no host would be left.
Result<std::vector<Host>> take_spares(std::vector<Host>& hosts, size_t count);

// Whether a spare has enough slots for the ranks of this host (its index in the plan).
bool can_replace(const SlotPlan& plan, int host, const std::vector<Host>& spares);

struct Replacement {
  std::vector<std::string> sentences;     // one for each host that has been replaced
  std::map<int, std::string> unreplaced;  // the other failed hosts, each with a sentence
};

// Gives the ranks of each failed host (its index in the plan) to the first spare with enough slots,
// and removes that host from `spares`.
Replacement replace_hosts(SlotPlan& plan, const std::vector<int>& failed,
                          std::vector<Host>& spares);

}  // namespace hvd::launcher
