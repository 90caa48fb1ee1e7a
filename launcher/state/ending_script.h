// Finds the script whose end makes a scheduler or a container end this process. main() calls this before the launcher
// leaves the script's session.
#pragma once

#include <optional>

#include "launcher/plan/launch_options.h"

namespace hvd::launcher {

// Returns nullopt if no ancestor of this process is such a script.
std::optional<EndingScript> find_ending_script();
bool has_ended(const EndingScript& script);

}  // namespace hvd::launcher
