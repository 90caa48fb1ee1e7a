// Runs the launches of a job, one after another. A job of constant size is launched again after a failure: on spare
// hosts instead of failed hosts (--spares), or on the same hosts (--max-restarts). An elastic job is launched again
// when its ranks change and its program must restart.
#pragma once

#include "launcher/output/launch_events.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Plans and runs the job. Prints messages about the result, and returns horovodrun's exit code.
int run_attempts(const Options& options, const LaunchEvents& events);

}  // namespace hvd::launcher
