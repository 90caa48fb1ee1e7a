// --check-build -H a,b: asks every host what works there, by a job of one rank on each that runs
// this program again, and compares. For a process with one thread.
#pragma once

#include "launcher/check/check_build.h"
#include "launcher/cli/options.h"

namespace hvd::launcher {

bool asks_hosts(const Settings& settings);
CheckAnswer check_hosts(const Options& options);

}  // namespace hvd::launcher
