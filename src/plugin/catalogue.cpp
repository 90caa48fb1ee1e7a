#include "plugin/catalogue.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/clock.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::plugin {
namespace {

// The functions that the vtable of each kind must have, in the order of its members after struct_size.
// Later functions, and functions with the entry "", may be missing.
constexpr std::array kOfBootstrap = {"identity", "put", "get", "fence"};
constexpr std::array kOfController = {"send",  "poll",         "abort",
                                      "hosts", "before_sleep", "after_sleep"};
constexpr std::array kOfOp = {"supports", "run", "poll", "", "", "abort"};

std::span<const char* const> needed_functions(uint32_t kind) {
  switch (kind) {
    case HVD_PLUGIN_BOOTSTRAP:
      return kOfBootstrap;
    case HVD_PLUGIN_CONTROLLER:
      return kOfController;
    case HVD_PLUGIN_OP:
      return kOfOp;
    default:
      return {};
  }
}

Status check_functions(const void* table, std::span<const char* const> needed) {
  size_t reach = 0;
  std::memcpy(&reach, table, sizeof reach);
  using Function = void (*)();
  for (size_t i = 0; i < needed.size(); ++i) {
    const size_t place = sizeof reach + i * sizeof(Function);
    Function function = nullptr;
    if (reach >= place + sizeof function) {
      std::memcpy(&function, static_cast<const char*>(table) + place, sizeof function);
    }
    if (function == nullptr && *needed[i] != '\0') {
      return invalid_argument(
          cat("the plugin's table, of struct_size ", reach, ", has no function ", needed[i]));
    }
  }
  return {};
}

constexpr char kGood = '+';

// Loads and probes a plugin, and encodes the result for the pipe.
std::string opinion_of(const std::string& path) {
  const auto loaded = load(path);
  if (!loaded.ok()) return "-" + loaded.error().message();
  const Status status = probe(**loaded);
  return status.ok() ? std::string(1, kGood) : "-" + status.message();
}

// The parent reports a crash of this child: disable the program's handlers and core files.
void be_quiet() {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM}) {
    ::signal(number, SIG_DFL);
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

// Reads until the end of the stream; returns false if the deadline comes first.
bool read_all(int fd, const Deadline& deadline, std::string* text) {
  for (;;) {
    const double left = deadline.seconds_left();
    if (left <= 0) return false;
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(left * 1000) + 1) < 0 && errno != EINTR) return false;
    if (entry.revents == 0) continue;
    char buffer[1024];
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text->append(buffer, static_cast<size_t>(count));
  }
}

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

Result<const hvd_plugin*> load(const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open(path));
  const auto entry = reinterpret_cast<hvd_plugin_entry>(library.symbol(HVD_PLUGIN_ENTRY_SYMBOL));
  if (entry == nullptr) {
    return invalid_argument(
        cat(path, " is no plugin of this version: it does not export ", HVD_PLUGIN_ENTRY_SYMBOL));
  }
  const hvd_plugin* record = entry();
  if (Status status = check_record(record); !status.ok()) return status.with_context(path);
  return record;
}

Status check_record(const hvd_plugin* record) {
  if (record == nullptr) return invalid_argument("the plugin gave no record");
  if (record->struct_size < sizeof(hvd_plugin)) {
    return invalid_argument(cat("the plugin's record has ", record->struct_size,
                                " bytes where at least ", sizeof(hvd_plugin), " are needed"));
  }
  if (record->abi != HVD_PLUGIN_ABI) {
    return invalid_argument(cat("the plugin speaks plugin ABI ", record->abi,
                                ", this library speaks ", HVD_PLUGIN_ABI));
  }
  if (record->kind < HVD_PLUGIN_BOOTSTRAP || record->kind > HVD_PLUGIN_FRAMEWORK) {
    return invalid_argument(cat("the plugin is of kind ", record->kind, ", which is unknown"));
  }
  if (record->threads > HVD_THREADS_ONE) {
    return invalid_argument(cat("the plugin's record has threads ", record->threads,
                                ", but this library offers only 0 (HVD_THREADS_ANY) and 1 "
                                "(HVD_THREADS_ONE): build the plugin with one of these"));
  }
  if (record->name == nullptr || record->open == nullptr || record->close == nullptr ||
      record->vtable == nullptr) {
    return invalid_argument("the plugin's record lacks its name, open, close or vtable");
  }
  return check_functions(record->vtable, needed_functions(record->kind));
}

Status probe(const hvd_plugin& record) {
  char why[512] = "";
  if (record.probe == nullptr || record.probe(why, sizeof why) == 1) return {};
  return unavailable(why[0] != '\0' ? why : "its probe says no, without a reason");
}

Status try_in_child(const std::string& path, double limit_seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return system_error("cannot fork to try a plugin", errno);
  if (child == 0) {
    be_quiet();
    const std::string opinion = opinion_of(path);
    const ssize_t written = ::write(writing.get(), opinion.data(), opinion.size());
    ::_exit(written == static_cast<ssize_t>(opinion.size()) ? 0 : 1);
  }
  writing.reset();
  std::string opinion;
  const bool ended = read_all(reading.get(), Deadline::after_seconds(limit_seconds), &opinion);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return deadline_exceeded(cat(path, " does not answer within ", limit_seconds,
                                 " seconds when it is opened and probed"));
  }
  if (WIFSIGNALED(status)) {
    return unavailable(
        cat(path, " crashes when it is opened and probed (", ::strsignal(WTERMSIG(status)), ")"));
  }
  if (opinion.empty()) return unavailable(cat(path, " ends the process when it is probed"));
  if (opinion.front() == kGood) return {};
  return unavailable(opinion.substr(1));
}

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
    // The kind of a plugin that failed to load is unknown: search for the name in its path.
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
