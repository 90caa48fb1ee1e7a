// Holds back spare hosts (--spares), and puts them in place of failed hosts. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Takes the last `count` of the hosts away; an error when that leaves none.
Result<std::vector<Host>> take_spares(std::vector<Host>& hosts, size_t count);

struct Replacement {
  std::vector<std::string> sentences;  // each failed host with its spare, or that there was none
  bool is_complete = true;             // all of the failed hosts have been replaced
};

// Gives the ranks of each failed host (its index in the plan) to the first spare with enough slots,
// which is a spare no more.
Replacement replace_hosts(SlotPlan& plan, const std::vector<int>& failed,
                          std::vector<Host>& spares);

}  // namespace hvd::launcher
