#include "plugin/catalogue.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "plugin/library.h"

namespace hvd::plugin {
namespace {

constexpr double kLoadSeconds = 10;

std::vector<std::string> shared_objects(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) return paths;
  for (const auto& entry : entries) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Returns the folder of the plugins installed with this library; empty if the library's path is unknown.
std::string own_folder() {
  const std::string path = own_path();
  return path.empty() ? path : (std::filesystem::path(path).parent_path() / "horovod").string();
}

bool is_own(const std::string& path) {
  const std::string own = own_folder();
  return !own.empty() && path.starts_with(own + "/");
}

// Returns the folders of a list, then the folder `name` next to this library.
std::vector<std::string> folders(std::string_view list, const char* name) {
  std::vector<std::string> found;
  for (std::string& folder : split(list, ':')) {
    if (!folder.empty()) found.push_back(std::move(folder));
  }
  if (const std::string own = own_folder(); !own.empty()) found.push_back(cat(own, "/", name));
  return found;
}

}  // namespace

std::string own_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&kind_name), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  return info.dli_fname;
}

Catalogue Catalogue::make(std::span<const hvd_plugin* const> builtins,
                          std::span<const std::string> folders) {
  Catalogue catalogue;
  for (const hvd_plugin* record : builtins) catalogue.add({}, record);
  for (const std::string& folder : folders) {
    for (std::string& path : shared_objects(folder)) catalogue.add_file(std::move(path));
  }
  return catalogue;
}

Catalogue Catalogue::of_backend(std::span<const std::string> folders, std::string_view name) {
  Catalogue catalogue;
  for (const std::string& folder : folders) {
    for (std::string& path : shared_objects(folder)) {
      const std::string stem = std::filesystem::path(path).stem().string();
      if (stem == name || stem.starts_with(cat(name, "_"))) catalogue.add_file(std::move(path));
    }
  }
  return catalogue;
}

void Catalogue::add_file(std::string path) {
  if (!is_own(path)) {
    if (Status status = try_in_child(path, kLoadSeconds); !status.ok()) {
      candidates_.push_back({std::move(path), nullptr, status.message()});
      return;
    }
  }
  auto loaded = load(path);
  if (loaded.ok()) {
    add(std::move(path), loaded.value());
  } else {
    candidates_.push_back({std::move(path), nullptr, loaded.error().message()});
  }
}

void Catalogue::add(std::string path, const hvd_plugin* record) {
  PluginCandidate candidate{std::move(path), record, {}};
  if (Status status = check_record(record); !status.ok()) {
    candidate.record = nullptr;
    candidate.refusal = status.message();
  } else {
    candidate.refusal = probe(*record).message();
  }
  candidates_.push_back(std::move(candidate));
}

std::vector<const hvd_plugin*> Catalogue::usable(hvd_plugin_kind kind) const {
  std::vector<const hvd_plugin*> records;
  for (const PluginCandidate& candidate : candidates_) {
    if (candidate.works() && candidate.record->kind == kind) records.push_back(candidate.record);
  }
  std::stable_sort(records.begin(), records.end(), [](const hvd_plugin* a, const hvd_plugin* b) {
    return a->priority > b->priority;
  });
  return records;
}

const hvd_plugin* Catalogue::find(hvd_plugin_kind kind, std::string_view name) const {
  for (const hvd_plugin* record : usable(kind)) {
    if (name == record->name) return record;
  }
  return nullptr;
}

std::string Catalogue::why_none(hvd_plugin_kind kind, std::string_view name) const {
  std::string reasons;
  for (const PluginCandidate& candidate : candidates_) {
    // The kind of a plugin that failed to load is unknown: compare its file name.
    const bool meant = candidate.record != nullptr
                           ? candidate.record->kind == static_cast<uint32_t>(kind) &&
                                 (name.empty() || name == candidate.record->name)
                           : candidate.path.find(name) != std::string::npos;
    if (!meant || candidate.works()) continue;
    if (!reasons.empty()) reasons += "; ";
    reasons +=
        candidate.path.empty() ? cat("the built-in one: ", candidate.refusal) : candidate.refusal;
  }
  if (!reasons.empty()) return reasons;
  if (name.empty()) return cat("no ", kind_name(kind), " plugin is installed");
  return cat("no ", kind_name(kind), " plugin named ", name, " is installed");
}

std::string_view kind_name(uint32_t kind) {
  switch (kind) {
    case HVD_PLUGIN_BOOTSTRAP:
      return "bootstrap";
    case HVD_PLUGIN_CONTROLLER:
      return "controller";
    case HVD_PLUGIN_OP:
      return "op";
    case HVD_PLUGIN_FRAMEWORK:
      return "framework";
    default:
      return "unknown";
  }
}

std::vector<std::string> search_path(std::string_view list) { return folders(list, "plugins"); }
std::vector<std::string> backend_path(std::string_view list) { return folders(list, "ops"); }
std::string own_backend(std::string_view name) {
  std::error_code error;
  for (const std::string& folder : backend_path("")) {
    std::string path = cat(folder, "/", name, ".so");
    if (std::filesystem::exists(path, error)) return path;
  }
  return {};
}
std::vector<std::string> controller_path(std::string_view list) {
  return folders(list, "controllers");
}
std::vector<std::string> bootstrap_path(std::string_view list) {
  return folders(list, "bootstraps");
}

}  // namespace hvd::plugin
