// The plan of --dry-run, as JSON and as a table. Pure.
#pragma once

#include <string>

#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// {"size":8,"ranks":[{"rank":0,"host":"a",...,"env":{...}},...]} and a newline. env is what the
// launcher sets for that slot, by flags too, and knows before a job exists: no job, no secret.
std::string plan_as_json(const SlotPlan& plan, const LaunchSettings& settings);
// A line for each host, for people: its ranks, and how its agent is started.
std::string plan_as_table(const SlotPlan& plan, const LaunchSettings& settings);

}  // namespace hvd::launcher
