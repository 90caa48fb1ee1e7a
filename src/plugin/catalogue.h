// The plugins of this process: the built-in plugins, and the shared objects of the search path. Keeps the
// reason for each refused plugin. The runtime makes a Catalogue in hvd_init. Immutable after make(); any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "horovod/plugin.h"

namespace hvd::plugin {

// Opens a plugin's shared object, calls its entry, and checks its record.
// Returns the record, which is valid for the rest of the process. An error names the file.
Result<const hvd_plugin*> load(const std::string& path);

// Returns ok if the plugin works here, else the plugin's own reason.
Status probe(const hvd_plugin& record);

// Checks that the record is complete and that this build supports it.
Status check_record(const hvd_plugin* record);

// Tests a plugin of a third party in a child process with a time limit: opens it, checks its record
// and calls its probe.
// Returns an error if its record is refused, if its probe fails, or if it crashes or hangs. The error names the file,
// except if the probe fails.
Status try_in_child(const std::string& path, double limit_seconds);

struct PluginCandidate {
  std::string path;                    // empty: built in
  const hvd_plugin* record = nullptr;  // nullptr if the plugin could not be loaded
  std::string refusal;                 // why the plugin was refused; empty if the plugin works here
  bool works() const { return record != nullptr && refusal.empty(); }
};

class Catalogue {
 public:
  // Probes every record, and loads and probes each *.so of the folders, in their order. Ignores a
  // missing folder. Tries a plugin that is not part of this library's installation in a child process first.
  static Catalogue make(std::span<const hvd_plugin* const> builtins,
                        std::span<const std::string> folders);

  // Loads and probes the files NAME.so and NAME_*.so of the folders.
  static Catalogue of_backend(std::span<const std::string> folders, std::string_view name);

  std::span<const PluginCandidate> all() const { return candidates_; }
  // Returns the plugins of a kind that work here, the highest priority first.
  std::vector<const hvd_plugin*> usable(hvd_plugin_kind kind) const;
  // Explains in one sentence why no plugin of this kind and name works here; an empty name means any name.
  std::string why_none(hvd_plugin_kind kind, std::string_view name) const;
  // Returns the plugin of this kind and name that works here, or nullptr.
  const hvd_plugin* find(hvd_plugin_kind kind, std::string_view name) const;

 private:
  void add(std::string path, const hvd_plugin* record);
  void add_file(std::string path);
  std::vector<PluginCandidate> candidates_;
};

// Returns the path of the library that contains this code, as the loader knows it; empty if unknown.
std::string own_path();

// Returns "bootstrap", "controller", "op", "framework" or "unknown".
std::string_view kind_name(uint32_t kind);

// Returns the folders to search: the colon-separated `list`, then <folder of this library>/horovod/plugins.
std::vector<std::string> search_path(std::string_view list);
// Returns the folders to search for bootstraps: the list, then <folder of this
// library>/horovod/bootstraps. Bootstraps have their own folder because few processes need one.
std::vector<std::string> bootstrap_path(std::string_view list);
// Returns the folders to search for op plugins that are opened only if the user selects them: .../horovod/ops.
std::vector<std::string> backend_path(std::string_view list);
// Returns the path of a backend's file in this library's installation; empty if there is none.
std::string own_backend(std::string_view name);
// Returns the folders to search for controllers that are opened only if the user selects them: .../horovod/controllers.
std::vector<std::string> controller_path(std::string_view list);

}  // namespace hvd::plugin
