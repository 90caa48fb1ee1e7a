// Opens the plugins that a setting chooses: HOROVOD_CONTROLLER for messages between ranks,
// HOROVOD_CPU_OPERATIONS for tensors in host memory, HOROVOD_GPU_OPERATIONS for tensors in device
// memory. The start of the runtime calls it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plugin/catalogue.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

struct BackendSelection {
  const hvd_plugin* controller = nullptr;  // nullptr: what is built in
  std::vector<const hvd_plugin*> ops;      // none where the settings name what is built in
  // Whether the built-in operations run what they can: they have their own links.
  bool uses_own_ops = true;
  // The file of the backend for devices that trials choose, where no setting names one; empty: none. It is
  // opened where the ranks agree on that (backend_agreement.h).
  std::string devices_by_trial;
  // Eight lines: the choice in words, the version of this library, this rank's host, the library's path,
  // whether links are encrypted (1 or 0), whether sums have one order (1 or 0), the operations on devices
  // ("trial": trials choose), and for trials what this rank has: "driver" of GPUs, "none" or "file", which is
  // missing.
  std::string words;
  // The chosen plugins, in words: they open connections of their own, which no key of ours covers.
  std::vector<std::string> own_links;
};

// A backend that a setting names and that does not work here is an error that says why and what to do;
// for devices a warning, since the backend of devices is opened also where it finds no GPU.
Result<BackendSelection> select_backends(const WorkerSettings& settings);

// Takes out the plugins that no setting names, and says so: controllers and operations from the search path
// open connections of their own.
void leave_out_unencrypted(const plugin::Catalogue& catalogue, bool aloud,
                           std::vector<const hvd_plugin*>* controllers,
                           std::vector<const hvd_plugin*>* ops);

// The files of one backend, or of one controller, and why each was refused. Opens them.
plugin::Catalogue installed_backends(const WorkerSettings& settings, std::string_view name);
plugin::Catalogue installed_controllers(const WorkerSettings& settings, std::string_view name);

// Tells the user of files that were refused, and of folders that are none; the job goes on without them.
void log_refusals(const plugin::Catalogue& catalogue, const WorkerSettings& settings, bool aloud);

}  // namespace hvd::runtime
