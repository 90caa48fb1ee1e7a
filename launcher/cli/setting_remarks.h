// Sentences about the user's settings and variables that have no effect, or less effect than expected.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/environment_choice.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Reads the environment of the launcher.
std::vector<std::string> setting_remarks(const LaunchSettings& settings,
                                         const EnvironmentChoice& choice);

}  // namespace hvd::launcher
