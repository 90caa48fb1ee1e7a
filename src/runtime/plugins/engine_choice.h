// The plugins that are opened only when chosen: by HOROVOD_CONTROLLER for messages between ranks, by
// HOROVOD_CPU_OPERATIONS for tensors in host memory, by HOROVOD_GPU_OPERATIONS for those of devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "plugin/catalogue.h"

namespace hvd::runtime {

struct EngineChoice {
  const hvd_plugin* controller = nullptr;  // nullptr: what is built in
  std::vector<const hvd_plugin*> ops;      // none where the settings name what is built in
  // Whether the built-in operations run what they can: they have their own links.
  bool uses_own_ops = true;
  std::string words;  // the same where ranks have chosen the same
};

// An engine that is named and does not work here is a sentence that says why and what to do: an error,
// but a warning for devices, whose engine is opened also where it finds no GPU.
Result<EngineChoice> chosen_engines(const Settings& settings);

// The files of one engine, or of one controller, and why each was refused. Opens them.
plugin::Catalogue installed_engines(const Settings& settings, std::string_view name);
plugin::Catalogue installed_controllers(const Settings& settings, std::string_view name);

// Tells the user of files that were refused, and of folders that are none; the job goes on without them.
void say_refusals(const plugin::Catalogue& catalogue, const Settings& settings, bool aloud);

}  // namespace hvd::runtime
