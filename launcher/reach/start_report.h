// Prints the sentences about hosts and their ranks before the ranks start.
#pragma once

#include "launcher/hosts/host_table.h"
#include "launcher/output/output.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/reach/host_jobs.h"
#include "launcher/reach/host_startup.h"

namespace hvd::launcher {

// Prints what the user may not expect of the settings, the variables, the staged code and the command.
void print_remarks(const Options& options, const HostJobs& host_jobs, JobOutput& output);
// Prints the errors of hosts that were not reached, and the horovodrun command that the user may have meant.
void print_errors(const HostStartup::Outcome& hosts, const Options& options, JobOutput& output);
// Prints warnings, hosts with too few cores, and the ranks' bindings; with --verbose also the ranks' threads, and the
// programs of the hosts.
void print_start(const HostStartup::Outcome& outcome, const HostTable& hosts, bool is_first,
                 const Options& options, JobOutput& output);

}  // namespace hvd::launcher
