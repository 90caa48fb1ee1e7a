// Selects the plugins that settings name: HOROVOD_CONTROLLER for messages between ranks,
// HOROVOD_CPU_OPERATIONS for tensors in host memory, HOROVOD_GPU_OPERATIONS for tensors in device
// memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plugin/catalogue.h"
#include "runtime/plugins/plugin_host.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

struct BackendSelection {
  const hvd_plugin* controller = nullptr;  // nullptr: the built-in controller
  std::vector<const hvd_plugin*> ops;      // empty if the settings name built-in ops
  // True if the built-in operations, which have their own links, run batches that they support.
  bool uses_own_ops = true;
  // The file of the device backend that trials select if no setting names a backend; may be empty.
  // The runtime opens the file if the ranks agree (backend_agreement.h).
  std::string devices_by_trial;
  // Eight lines: a description of the choice, the version of this library, this rank's host, the
  // library's path, whether links are encrypted (1 or 0), whether sums have a fixed order (1 or 0), the
  // operations on devices ("trial": trials select them), and for trials the state of this rank:
  // "driver" (of GPUs), "none", or "file" if the file is missing.
  std::string words;
  // Descriptions of selected plugins with their own connections, which this library does not encrypt.
  std::vector<std::string> own_links;
};

// Returns an error with the reason and a remedy if a setting names a backend that does not work here.
// For devices, only warns, since the runtime opens the device backend even without a GPU.
Result<BackendSelection> select_backends(const WorkerSettings& settings);

// Removes the plugins of the search path, and logs this, as a warning if `aloud`: they open their own connections,
// which are not encrypted.
void leave_out_unencrypted(const plugin::Catalogue& catalogue, bool aloud,
                           std::vector<const hvd_plugin*>* controllers,
                           std::vector<const hvd_plugin*>* ops);

// Loads the files of one backend, or of one controller, and returns them, with the reasons for refusals.
plugin::Catalogue installed_backends(const WorkerSettings& settings, std::string_view name);
plugin::Catalogue installed_controllers(const WorkerSettings& settings, std::string_view name);

// Logs refused files and missing folders; the job continues without them.
void log_refusals(const plugin::Catalogue& catalogue, const WorkerSettings& settings, bool aloud);

// Combines two controllers: a controller that the user chose carries the messages, and the built-in
// controller keeps the links for the data of the built-in operations. One PluginHost must have opened both controllers,
// `data` first; `data` decides which ranks share a host.
OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data);

// Returns the rank whose loss made a controller fail, or -1 if the controller does not name a rank.
int32_t lost_rank_of(const OpenedPlugin& controller);
// Fails every link of a controller with this cause; peers also receive its lost rank.
void abort_links(const OpenedPlugin& controller, const Status& cause);

}  // namespace hvd::runtime
