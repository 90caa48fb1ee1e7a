#include "runtime/plugins/backend_selection.h"

#include <cstddef>
#include <filesystem>

#include "base/cores.h"
#include "base/log/log.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "horovod/plugin_controller.h"
#include "horovod/version.h"

namespace hvd::runtime {
namespace {

// Returns whether the name means the built-in backend: a name of the original Horovod or of this project.
bool is_built_in(std::string_view name) {
  return name.empty() || name == "gloo" || name == "tcp" || name == "cpu" || name == "host";
}

// Converts a setting's value to a plugin's name, which differs only for "libgloo".
std::string plugin_name(const std::string& value) { return value == "libgloo" ? "gloo" : value; }

std::string how_to_get(std::string_view name) {
  if (name == "mpi") return "install libopenmpi-dev or libmpich-dev and build again";
  if (name == "gloo") return "install libgloo-dev and build again";
  if (name == "ccl") return "build again with plugins/ops/ccl";
  if (name == "ddl") return "DDL was discontinued by its maker";
  return "the known ones are gloo, libgloo, mpi and ccl, for GPUs nccl, for the controller gloo "
         "and mpi; "
         "others are plugins in a folder of HOROVOD_PLUGIN_PATH";
}

bool is_of_host_memory(std::string_view name) {
  return is_built_in(name) || name == "libgloo" || name == "mpi" || name == "ccl";
}

// Returns the record that a setting names; nullptr for a built-in backend. Selects a device backend even if it
// does not work here: at run time, the ranks decide together whether to use it.
Result<const hvd_plugin*> choose(const WorkerSettings& settings, const std::string& setting,
                                 const char* variable, hvd_plugin_kind kind,
                                 bool of_devices = false) {
  const std::string value = to_lower(trim(setting));
  const std::string what = kind == HVD_PLUGIN_OP ? "operations" : "controller";
  if (is_built_in(value)) {
    if (!value.empty()) log::info(cat(variable, "=", printable(value), ": the built-in ", what));
    return static_cast<const hvd_plugin*>(nullptr);
  }
  const std::string name = plugin_name(value);
  const plugin::Catalogue backends = kind == HVD_PLUGIN_OP ? installed_backends(settings, name)
                                                           : installed_controllers(settings, name);
  if (const hvd_plugin* record = backends.find(kind, name)) return record;
  for (const plugin::PluginCandidate& candidate : backends.all()) {
    if (of_devices && candidate.record != nullptr) return candidate.record;
  }
  const bool is_built = !backends.all().empty();
  return unavailable(
      cat(variable, " is ", printable(value), ", but ",
          is_built ? backends.why_none(kind, name)
                   : cat("this build has no such ", kind == HVD_PLUGIN_OP ? "backend" : what, ": ",
                         how_to_get(name)),
          "; fix that, or unset ", variable));
}

// Selects the device backend. Many container images set HOROVOD_GPU_OPERATIONS, which the original Horovod reads when
// it is built, so a missing backend is not an error. Does not select backends of host memory.
const hvd_plugin* device_backend(const WorkerSettings& settings) {
  constexpr const char* kVariable = "HOROVOD_GPU_OPERATIONS";
  constexpr const char* kOtherwise = "tensors of GPUs go through host memory";
  const std::string name = to_lower(trim(settings.gpu_operations));
  if (is_of_host_memory(name)) {
    if (!name.empty()) log::info(cat(kVariable, "=", name, ": ", kOtherwise));
    return nullptr;
  }
  const auto found =
      choose(settings, settings.gpu_operations, kVariable, HVD_PLUGIN_OP, name == "nccl");
  if (!found.ok()) log::warning(cat(found.error().message(), "; ", kOtherwise));
  return found.value_or(nullptr);
}

void note_own_links(const hvd_plugin* record, const char* what, const char* variable,
                    const std::string& value, std::vector<std::string>* own_links) {
  if (record == nullptr) return;
  own_links->push_back(
      cat("the ", what, " ", record->name, " (", variable, "=", printable(value), ")"));
}

// Returns whether trials select the device backend; false for settings that its library cannot guarantee.
bool is_by_trial(const WorkerSettings& settings) {
  return trim(settings.gpu_operations).empty() && !settings.encrypts && !settings.is_reproducible;
}

const char* name_of(const hvd_plugin* record) {
  return record == nullptr ? "the built-in one" : record->name;
}

using OnMessage = void (*)(void* argument, int32_t rank, const void* message, size_t size);

// The destructor closes `messages` first, since `data` was opened first.
struct ControllerPair {
  OpenedPlugin data;
  OpenedPlugin messages;
};

ControllerPair& pair_of(void* context) { return *static_cast<ControllerPair*>(context); }
const hvd_controller_v1& links_of(const OpenedPlugin& plugin) {
  return plugin.vtable<hvd_controller_v1>();
}

int send_message(void* context, int32_t rank, const void* message, size_t size) {
  const OpenedPlugin& by = pair_of(context).messages;
  return links_of(by).send(by.context(), rank, message, size);
}

int poll_both(void* context, OnMessage on_message, void* argument, int32_t* progressed, char* error,
              size_t error_size) {
  const ControllerPair& pair = pair_of(context);
  const int code =
      links_of(pair.messages)
          .poll(pair.messages.context(), on_message, argument, progressed, error, error_size);
  if (code != HVD_OK) return code;
  const OnMessage nobody = [](void*, int32_t, const void*, size_t) {};
  return links_of(pair.data).poll(pair.data.context(), nobody, nullptr, progressed, error,
                                  error_size);
}

void abort_both(void* context, const char* cause, int32_t lost_rank) {
  const ControllerPair& pair = pair_of(context);
  const Status status = aborted(cause).with_lost_rank(lost_rank);
  abort_links(pair.messages, status);
  abort_links(pair.data, status);
}

const int32_t* hosts_of_data(void* context) {
  const OpenedPlugin& by = pair_of(context).data;
  return links_of(by).hosts(by.context());
}

int both_may_sleep(void* context) {
  const ControllerPair& pair = pair_of(context);
  if (links_of(pair.messages).before_sleep(pair.messages.context()) != 1) return 0;
  if (links_of(pair.data).before_sleep(pair.data.context()) == 1) return 1;
  links_of(pair.messages).after_sleep(pair.messages.context());
  return 0;
}

void both_wake(void* context) {
  const ControllerPair& pair = pair_of(context);
  links_of(pair.messages).after_sleep(pair.messages.context());
  links_of(pair.data).after_sleep(pair.data.context());
}

int32_t rank_lost_by_either(void* context) {
  const ControllerPair& pair = pair_of(context);
  const int32_t rank = lost_rank_of(pair.messages);
  return rank >= 0 ? rank : lost_rank_of(pair.data);
}

void close_both(void* context) { delete &pair_of(context); }

constexpr hvd_controller_v1 kPairVtable = {
    .struct_size = sizeof(hvd_controller_v1),
    .send = send_message,
    .poll = poll_both,
    .abort = [](void* context, const char* cause) { abort_both(context, cause, -1); },
    .hosts = hosts_of_data,
    .before_sleep = both_may_sleep,
    .after_sleep = both_wake,
    .send_parts = nullptr,
    .lost_rank = rank_lost_by_either,
    .abort_lost = abort_both};
// The record of a pair, which no setting can name.
constexpr hvd_plugin kPairRecord = {.struct_size = sizeof(hvd_plugin),
                                    .abi = HVD_PLUGIN_ABI,
                                    .kind = HVD_PLUGIN_CONTROLLER,
                                    .name = "pair",
                                    .priority = 0,
                                    .threads = HVD_THREADS_ONE,
                                    .reserved = 0,
                                    .probe = nullptr,
                                    .open = nullptr,
                                    .close = close_both,
                                    .vtable = &kPairVtable};

}  // namespace

plugin::Catalogue installed_backends(const WorkerSettings& settings, std::string_view name) {
  return plugin::Catalogue::of_backend(plugin::backend_path(settings.plugin_path), name);
}

plugin::Catalogue installed_controllers(const WorkerSettings& settings, std::string_view name) {
  return plugin::Catalogue::of_backend(plugin::controller_path(settings.plugin_path), name);
}

Result<BackendSelection> select_backends(const WorkerSettings& settings) {
  BackendSelection selection;
  HVD_ASSIGN_OR_RETURN(selection.controller, choose(settings, settings.controller,
                                                    "HOROVOD_CONTROLLER", HVD_PLUGIN_CONTROLLER));
  HVD_ASSIGN_OR_RETURN(const hvd_plugin* memory, choose(settings, settings.cpu_operations,
                                                        "HOROVOD_CPU_OPERATIONS", HVD_PLUGIN_OP));
  if (memory != nullptr) selection.ops.push_back(memory);
  const hvd_plugin* devices = device_backend(settings);
  if (devices != nullptr && devices != memory) selection.ops.push_back(devices);
  const bool by_trial = is_by_trial(settings);
  if (by_trial) selection.devices_by_trial = plugin::own_backend("nccl");
  note_own_links(selection.controller, "controller", "HOROVOD_CONTROLLER", settings.controller,
                 &selection.own_links);
  note_own_links(memory, "backend", "HOROVOD_CPU_OPERATIONS", settings.cpu_operations,
                 &selection.own_links);
  note_own_links(devices, "backend", "HOROVOD_GPU_OPERATIONS", settings.gpu_operations,
                 &selection.own_links);
  // If one library carries both messages and tensors, the built-in operations are not used.
  selection.uses_own_ops = selection.controller == nullptr || memory == nullptr ||
                           std::string_view(selection.controller->name) != memory->name;
  selection.words =
      cat("controller ", name_of(selection.controller), " and operations ", name_of(memory), "\n",
          HVD_VERSION, "\n", settings.hostname, "\n", plugin::own_path(), "\n",
          settings.encrypts ? "1" : "0", "\n", settings.is_reproducible ? "1" : "0", "\n",
          by_trial             ? "trial"
          : devices == nullptr ? "host"
                               : devices->name,
          "\n",
          selection.devices_by_trial.empty() ? "file"
          : find_gpu_driver().ok()           ? "driver"
                                             : "none");
  return selection;
}

void leave_out_unencrypted(const plugin::Catalogue& catalogue, bool aloud,
                           std::vector<const hvd_plugin*>* controllers,
                           std::vector<const hvd_plugin*>* ops) {
  for (const plugin::PluginCandidate& candidate : catalogue.all()) {
    if (candidate.path.empty() || !candidate.works()) continue;
    if (std::erase(*controllers, candidate.record) + std::erase(*ops, candidate.record) == 0)
      continue;
    log::write(aloud ? log::Level::kWarning : log::Level::kInfo,
               cat("a plugin is left out: ", candidate.path,
                   ": it opens its own connections, which HOROVOD_ENCRYPT does not encrypt"));
  }
}

void log_refusals(const plugin::Catalogue& catalogue, const WorkerSettings& settings, bool aloud) {
  const log::Level level = aloud ? log::Level::kWarning : log::Level::kInfo;
  for (const std::string& folder : split(settings.plugin_path, ':')) {
    std::error_code error;
    if (folder.empty() || std::filesystem::is_directory(folder, error)) continue;
    log::write(level, cat("HOROVOD_PLUGIN_PATH names ", printable(folder),
                          ", which is no folder: no plugins are looked for there"));
  }
  for (const plugin::PluginCandidate& candidate : catalogue.all()) {
    if (candidate.works() || candidate.path.empty()) continue;
    log::write(level, candidate.refusal.find(candidate.path) != std::string::npos
                          ? cat("a plugin is left out: ", candidate.refusal)
                          : cat("a plugin is left out: ", candidate.path, ": ", candidate.refusal));
  }
}

int32_t lost_rank_of(const OpenedPlugin& controller) {
  auto* const lost_rank = field_of(links_of(controller), &hvd_controller_v1::lost_rank);
  return lost_rank == nullptr ? -1 : lost_rank(controller.context());
}

void abort_links(const OpenedPlugin& controller, const Status& cause) {
  const hvd_controller_v1& links = links_of(controller);
  auto* const abort_lost = field_of(links, &hvd_controller_v1::abort_lost);
  if (cause.lost_rank() >= 0 && abort_lost != nullptr) {
    abort_lost(controller.context(), cause.message().c_str(), cause.lost_rank());
  } else {
    links.abort(controller.context(), cause.message().c_str());
  }
}

OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data) {
  return OpenedPlugin::made(&kPairRecord, new ControllerPair{std::move(data), std::move(messages)});
}

}  // namespace hvd::runtime
