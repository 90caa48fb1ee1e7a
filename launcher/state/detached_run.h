// Runs a job that continues without its terminal (--detach).
#pragma once

#include <functional>
#include <optional>

#include "launcher/plan/launch_settings.h"
#include "launcher/state/record_writer.h"

namespace hvd::launcher {

// Finds the script whose end makes a scheduler or a container end this process; nullopt if no ancestor of this process
// is such a script. Call before the launcher leaves the script's session.
std::optional<EndingScript> find_ending_script();
bool has_ended(const EndingScript& script);

// Runs a launch to its end, and records it. Returns the exit code.
using Launch = std::function<int(const DetachedEvents& events)>;

// Forks, and returns an exit code in both processes. The process in the terminal shows the output and forwards signals
// until all ranks run. `script`: the script whose end ends the job. Call before any thread starts.
int run_detached(const LaunchSettings& settings, const std::optional<EndingScript>& script,
                 const Launch& launch);

}  // namespace hvd::launcher
