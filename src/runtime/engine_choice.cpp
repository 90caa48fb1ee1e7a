#include "runtime/engine_choice.h"

#include <string>

#include "base/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// What users of the original call the path without MPI, and ours.
bool is_built_in(std::string_view name) {
  return name.empty() || name == "gloo" || name == "tcp" || name == "cpu";
}

// Values name plugins, but for one whose name means the built-in path.
std::string plugin_name(const std::string& value) { return value == "libgloo" ? "gloo" : value; }

std::string how_to_get(std::string_view name) {
  if (name == "mpi") return "install libopenmpi-dev or libmpich-dev and build again";
  if (name == "gloo") return "install libgloo-dev and build again";
  if (name == "ddl") return "DDL was discontinued by its maker";
  return "put its plugin into a folder of HOROVOD_PLUGIN_PATH";
}

Status choose(const Settings& settings, const char* key, const char* variable,
              std::vector<const hvd_plugin*>* chosen) {
  const std::string value = to_lower(trim(settings.text(key)));
  if (is_built_in(value)) {
    if (!value.empty()) log::info(cat(variable, "=", printable(value), ": the built-in operations"));
    return {};
  }
  const std::string name = plugin_name(value);
  const plugin::Catalogue engines = installed_engines(settings, name);
  if (const hvd_plugin* record = engines.find(HVD_PLUGIN_OP, name)) {
    chosen->push_back(record);
    return {};
  }
  const bool is_built = !engines.all().empty();
  return unavailable(cat(variable, " is ", printable(value), ", but ",
                         is_built ? engines.why_none(HVD_PLUGIN_OP, name)
                                  : cat("this build has no such engine: ", how_to_get(name)),
                         "; unset it"));
}

}  // namespace

plugin::Catalogue installed_engines(const Settings& settings, std::string_view name) {
  return plugin::Catalogue::of_engine(plugin::engine_path(settings.text("plugin_path")), name);
}

Result<std::vector<const hvd_plugin*>> chosen_engines(const Settings& settings) {
  std::vector<const hvd_plugin*> chosen;
  HVD_RETURN_IF_ERROR(choose(settings, "cpu_operations", "HOROVOD_CPU_OPERATIONS", &chosen));
  // Set in many images, where the original reads it when it is built: tensors of devices are told
  // when they come.
  const Status devices = choose(settings, "gpu_operations", "HOROVOD_GPU_OPERATIONS", &chosen);
  if (!devices.ok()) log::warning(devices.message());
  return chosen;
}

void say_refusals(const plugin::Catalogue& catalogue, bool aloud) {
  for (const plugin::Candidate& candidate : catalogue.all()) {
    if (candidate.works() || candidate.path.empty()) continue;
    log::write(aloud ? log::Level::kWarning : log::Level::kInfo,
               candidate.refusal.find(candidate.path) != std::string::npos
                   ? cat("a plugin is left out: ", candidate.refusal)
                   : cat("a plugin is left out: ", candidate.path, ": ", candidate.refusal));
  }
}

}  // namespace hvd::runtime
