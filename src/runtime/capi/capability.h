// Tests whether a feature of this build works on this machine. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "plugin/catalogue.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// Returns the built-in plugins and the plugins of the search path.
plugin::Catalogue installed_plugins(const WorkerSettings& settings);

// Returns whether `name` (as in hvd_capability) works here; if not, sets *why to the reason.
bool is_capable(std::string_view name, const WorkerSettings& settings, std::string* why);

}  // namespace hvd::runtime
