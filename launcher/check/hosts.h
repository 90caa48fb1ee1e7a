// --check-build -H a,b: runs this program with --check-build on every host, by a job of one rank on
// each, and compares the results. horovodrun init asks the hosts in the same way. For a process with one thread.
#pragma once

#include <vector>

#include "launcher/check/check_build.h"
#include "launcher/check/format.h"
#include "launcher/cli/options.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

bool asks_hosts(const LaunchSettings& settings);
// The answers of the hosts of -H or of the hostfile, all asked at the same time.
Result<std::vector<HostCheck>> ask_hosts(const Options& options);
CheckAnswer check_hosts(const Options& options);

}  // namespace hvd::launcher
