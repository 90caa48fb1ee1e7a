// Runs the launches of a job: again after a failure, on spare hosts in place of failed ones (--spares), and from the
// beginning (--max-restarts); an elastic job also again when its ranks change. The launcher's main calls it.
#pragma once

#include <functional>

#include "launcher/cli/options.h"

namespace hvd::launcher {

// Plans and runs; returns horovodrun's exit code, after the sentences that explain it. `on_running`:
// called each time that all ranks run.
int run_attempts(const Options& options, const std::function<void()>& on_running = {});

}  // namespace hvd::launcher
