// Runs the launches of a job: again after a failure, on spare hosts instead of failed hosts (--spares), and from the
// beginning (--max-restarts). An elastic job is also launched again when its ranks change. The launcher's main calls
// this code.
#pragma once

#include "launcher/output/launch_events.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Plans and runs the job. Prints messages about the result, and returns horovodrun's exit code.
int run_attempts(const Options& options, const LaunchEvents& events);

}  // namespace hvd::launcher
