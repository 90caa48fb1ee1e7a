// The plan of --dry-run, as JSON and as a table. In a Slurm job, both functions run scontrol.
#pragma once

#include <string>

#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Returns {"size":8,"hosts":[...],"ranks":[{"rank":0,"host":"a",...,"env":{...}},...]} and a newline. "env" has the
// slot's variables that are known before a job exists, including variables of flags, but no job's number and no secret.
std::string plan_as_json(const SlotPlan& plan, const LaunchSettings& settings);
// Returns one line per host for people: its ranks, and the start method of its agent.
std::string plan_as_table(const SlotPlan& plan, const LaunchSettings& settings);

}  // namespace hvd::launcher
