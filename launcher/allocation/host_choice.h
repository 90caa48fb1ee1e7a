// Chooses the hosts of a job from the settings or the scheduler's allocation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Parses what `qstat -f -ne -s r -xml` prints: the slots of this job in each queue. Pure. An error says why there are none.
Result<std::vector<Host>> parse_sge_hosts(std::string_view text, std::string_view job);

// Asks qstat about this job of the user. An error says why there is no answer.
Result<std::vector<Host>> read_sge_hosts(const std::string& job);

// -H or -hostfile; else what a scheduler has given; else this machine with -np slots, as also
// within a rank of another job, whose scheduler's hosts are not this one's.
Result<std::vector<Host>> choose_hosts(const LaunchSettings& settings);

// Whether a scheduler has given hosts to this process, also where they cannot be read.
bool has_allocation(const LaunchSettings& settings);

}  // namespace hvd::launcher
