// --check-build -H a,b: runs --check-build on every host, as a job with one rank per host, and compares the results.
// For a process with one thread.
#pragma once

#include <vector>

#include "launcher/check/check_build.h"
#include "launcher/check/format.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

bool asks_hosts(const LaunchSettings& settings);
// Tests the hosts of -H or of the hostfile concurrently, and returns their answers.
Result<std::vector<HostCheck>> ask_hosts(const Options& options);
CheckAnswer check_hosts(const Options& options);

}  // namespace hvd::launcher
