// horovodrun doctor, and the examination of a job's hosts before its ranks start (--preflight net and full). An
// examination is a job of one rank for each host: the rank is the agent's own program with --doctor
// (launcher/agent/doctor), and prints what it finds as JSON. For a process with one thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/doctor/report.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Examines the hosts at this level (quick, net or full). A host that cannot be reached is a finding. Returns an error if
// nothing could be asked. `options.command`: the program whose Python is examined; may be empty.
Result<Diagnosis> examine(const Options& options, std::vector<Host> hosts,
                          const std::string& level);

// Before the first launch of a job with --preflight net or full: examines the hosts of the plan and the spares, prints
// what they have, and replaces hosts that fail by spares that do not. Returns an error if failures remain and
// --preflight-action is stop.
Status pass_preflight(const Options& options, SlotPlan& plan, std::vector<Host>& spares);

bool asks_for_doctor(std::span<const std::string> arguments);
// Returns the exit code: 0 without failures, 1 with failures, 2 if the hosts could not be asked.
int run_doctor(std::span<const std::string> arguments);

}  // namespace hvd::launcher
