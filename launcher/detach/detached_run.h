// Runs a job that goes on without its terminal (--detach). The launcher's main calls it.
#pragma once

#include <functional>
#include <optional>

#include "launcher/settings/launch_settings.h"
#include "launcher/state/ending_script.h"

namespace hvd::launcher {

// Runs a launch to its end; calls its argument when all ranks run. Returns the exit code.
using Launch = std::function<int(const std::function<void()>& on_running)>;

// Forks. The first process shows the output until all ranks run, and passes on signals until then.
// Returns the exit code of either process. `script`: at whose end the job ends. Call before there are threads.
int run_detached(const LaunchSettings& settings, const std::optional<EndingScript>& script,
                 const Launch& launch);

}  // namespace hvd::launcher
