// Chooses the hosts of a job from the settings or the scheduler's allocation.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// -H or -hostfile; else what a scheduler has given; else this machine with -np slots, as also
// within a rank of another job, whose scheduler's hosts are not this one's.
Result<std::vector<Host>> choose_hosts(const Settings& settings);

// The command that gives a stream to a host in place of this launcher's own ssh, or empty:
// --launch-agent, --ssh-command, or the script that the Kubernetes MPI Operator has left for it.
std::string launch_agent(const Settings& settings);

// --lease; without it a shorter one in steps of Slurm, which itself takes half a minute to see that a
// node is gone, and whose own network carries the link.
double lease_of(const Settings& settings);

}  // namespace hvd::launcher
