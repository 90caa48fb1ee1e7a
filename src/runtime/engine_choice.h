// The op plugins that are opened only when chosen: by HOROVOD_CPU_OPERATIONS for tensors in host
// memory, by HOROVOD_GPU_OPERATIONS for those of devices.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "plugin/catalogue.h"

namespace hvd::runtime {

// The records of those that the settings name; none where they name what is built in. An engine that
// is named and does not work here is a sentence that says why and what to do: an error for host memory,
// a warning for devices.
Result<std::vector<const hvd_plugin*>> chosen_engines(const Settings& settings);

// The files of one engine, and why each was refused. Opens them.
plugin::Catalogue installed_engines(const Settings& settings, std::string_view name);

// Tells the user of files that were refused; the job goes on without them.
void say_refusals(const plugin::Catalogue& catalogue, bool aloud);

}  // namespace hvd::runtime
