// Prints how a job ended: the first failure, with advice and the rank's last lines, or a warning that the ranks ran
// independently.
#pragma once

#include "launcher/hosts/host_table.h"
#include "launcher/job/supervisor.h"
#include "launcher/output/output.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/reach/host_jobs.h"

namespace hvd::launcher {

// `has_met`: a rank has joined a world, or used the store.
void print_end(const Options& options, const HostTable& hosts, const HostJobs& host_jobs,
               const Supervisor& supervisor, bool has_met, JobOutput& output);

}  // namespace hvd::launcher
