// Waits for the hosts with which an elastic job begins, or begins again: runs the discovery script until it names
// enough slots. Blocks the caller's thread, and uses its own loop.
#pragma once

#include <vector>

#include "base/result.h"
#include "launcher/elastic/job_history.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

struct FirstHosts {
  std::vector<Host> hosts;
  int signal = 0;  // signal that ended the wait, or 0
};

// Prints the reason for the wait. Returns an error if the script fails, or if there are too few slots for
// --elastic-timeout seconds. Without a script, returns the hosts from the settings or the scheduler.
Result<FirstHosts> wait_for_first_hosts(const Options& options);
// Returns the hosts for the next launch of the job with this history, with slots for at least --min-np ranks.
Result<FirstHosts> wait_for_next_hosts(const Options& options, JobHistory& history);

// Returns the chosen hosts. If the user has given no number of slots for a host, its agent counts the GPUs or cores
// (--slots-per-host). Blocks until all agents have answered. Starts no rank.
Result<std::vector<Host>> choose_hosts_with_slots(const Options& options);

}  // namespace hvd::launcher
