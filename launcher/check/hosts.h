// --check-build -H a,b: runs this program with --check-build on every host, by a job of one rank on
// each, and compares the results. For a process with one thread.
#pragma once

#include "launcher/check/check_build.h"
#include "launcher/cli/options.h"
#include "launcher/settings/launch_settings.h"

namespace hvd::launcher {

bool asks_hosts(const LaunchSettings& settings);
CheckAnswer check_hosts(const Options& options);

}  // namespace hvd::launcher
