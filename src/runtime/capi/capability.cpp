#include "runtime/capi/capability.h"

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/shared_library.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "plugin/builtins.h"
#include "runtime/plugins/backend_selection.h"

namespace hvd::runtime {
namespace {

Status try_shared_memory() {
  const UniqueFd memory(::memfd_create("hvd-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return system_error("cannot create a memfd", errno);
  if (::ftruncate(memory.get(), 4096) != 0) return system_error("cannot size a memfd", errno);
  void* address = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (address == MAP_FAILED) return system_error("cannot map a memfd", errno);
  ::munmap(address, 4096);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot open a Unix socket", errno);
  return {};
}

Status try_tcp() {
  const UniqueFd v4(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (v4) return {};
  const int error = errno;
  const UniqueFd v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return v6 ? Status() : system_error("cannot open a TCP socket", error);
}

// Checks a driver's library and its device. Does not initialise the driver, since a process can do
// this only once, and cannot fork afterwards.
Status try_driver(std::initializer_list<const char*> libraries, const char* device) {
  if (::access(device, R_OK | W_OK) != 0) return system_error(cat("cannot use ", device), errno);
  Status status;
  for (const char* library : libraries) {
    status = SharedLibrary::try_open(library, [](const SharedLibrary&) { return Status(); });
    if (status.ok()) break;
  }
  return status;
}

bool report(const Status& status, std::string* why) {
  *why = status.message();
  return status.ok();
}

// Returns whether a controller and an op that need no other library work here.
bool has_own_path(const plugin::Catalogue& catalogue, std::string* why) {
  for (const hvd_plugin_kind kind : {HVD_PLUGIN_CONTROLLER, HVD_PLUGIN_OP}) {
    bool found = false;
    for (const plugin::PluginCandidate& candidate : catalogue.all()) {
      found |= candidate.path.empty() && candidate.works() && candidate.record->kind == kind;
    }
    if (found) continue;
    *why = catalogue.why_none(kind, {});
    return false;
  }
  return report(try_tcp(), why);
}

bool has_plugin(std::string_view name, std::initializer_list<hvd_plugin_kind> kinds,
                const plugin::Catalogue& catalogue, std::string* why) {
  for (const hvd_plugin_kind kind : kinds) {
    if (catalogue.find(kind, name) != nullptr) return true;
  }
  *why = catalogue.why_none(*kinds.begin(), name);
  return false;
}

}  // namespace

plugin::Catalogue installed_plugins(const WorkerSettings& settings) {
  return plugin::Catalogue::make(plugin::builtins(), plugin::search_path(settings.plugin_path));
}

bool is_capable(std::string_view name, const WorkerSettings& settings, std::string* why) {
  if (name == "shared-memory") return report(try_shared_memory(), why);
  if (name == "tcp") return report(try_tcp(), why);
  if (name == "gloo") return has_own_path(installed_plugins(settings), why);
  if (name == "ddl") {
    *why = "DDL was discontinued by its maker";
    return false;
  }
  if (name == "mpi" || name == "nccl" || name == "ccl") {
    return has_plugin(name, {HVD_PLUGIN_OP}, installed_backends(settings, name), why);
  }
  if (name == "cuda") return report(try_driver({"libcuda.so.1"}, "/dev/nvidiactl"), why);
  if (name == "rocm") {
    return report(
        try_driver({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
                   "/dev/kfd"),
        why);
  }
  *why = cat("nothing is known of a capability '", printable(name), "'");
  return false;
}

}  // namespace hvd::runtime
