// Chooses the hosts of a job from the settings or the scheduler's allocation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Parses qstat's XML (-f -ne -s r -xml): the slots of this job in each queue. Returns an error if the job has no slots.
// Pure.
Result<std::vector<Host>> parse_sge_hosts(std::string_view text, std::string_view job);

Result<std::vector<Host>> read_sge_hosts(const std::string& job);

// Returns the hosts of -H or -hostfile; else a scheduler's hosts; else this machine with -np slots. A launcher that is
// a rank of another job ignores the scheduler, whose hosts belong to that job.
Result<std::vector<Host>> choose_hosts(const LaunchSettings& settings);

// Returns whether a scheduler has assigned hosts to this process, even if these hosts cannot be read.
bool has_allocation(const LaunchSettings& settings);

}  // namespace hvd::launcher
