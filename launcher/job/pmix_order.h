// Whether the ranks of a job are known to PMIx, which all of its hosts must have. Pure.
#pragma once

#include <vector>

#include "launcher/plan/slot_plan.h"
#include "launcher/plan/versions.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// Takes PMIx's version, which agents name among the others, out of each. True when all had one.
bool take_pmix(std::vector<Versions>& versions);
// Tells every host who is where.
void order_pmix(const SlotPlan& plan, std::vector<StartOrder>& orders);

}  // namespace hvd::launcher
