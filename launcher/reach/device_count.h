// Queries the agents of hosts for their GPUs and cores before the plan is made, for --slots-per-host gpu. Starts no
// rank. The launcher's command calls this code. Blocks until all agents have answered.
#pragma once

#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_options.h"

namespace hvd::launcher {

// Returns the chosen hosts. If the user has given no number of slots for a host, its agent counts the slots.
Result<std::vector<Host>> choose_hosts_with_slots(const Options& options);

}  // namespace hvd::launcher
