#include "ops/ccl/library.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <vector>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::ops::ccl {
namespace {

constexpr char kName[] = "libccl.so.1";
// oneCCL itself opens libfabric.so, which only a development package provides.
constexpr char kFabric[] = "libfabric.so.1";
constexpr char kFabricVariable[] = "CCL_OFI_LIBRARY_PATH";
constexpr char kThreadsVariable[] = "CCL_WORKER_OFFLOAD";
constexpr size_t kSentence = 500;

// Returns the name for the dynamic linker, then the paths in Intel's folder and in those of pip and conda.
std::vector<std::string> candidates() {
  std::vector<std::string> names{kName};
  for (const char* variable : {"CCL_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string root = environment_variable(variable).value_or("");
    if (!root.empty()) names.push_back(cat(root, "/lib/", kName));
  }
  return names;
}

Result<SharedLibrary> open_library() {
  const std::string wanted(trim(environment_variable("HOROVOD_CCL_LIBRARY").value_or("")));
  if (!wanted.empty()) return SharedLibrary::open(wanted);
  const auto loaded = loaded_libraries("libccl.so.");
  if (!loaded.empty()) return SharedLibrary::open(loaded.front());
  Status refusal;
  for (const std::string& name : candidates()) {
    auto library = SharedLibrary::open(name);
    if (library.ok()) return library;
    if (refusal.ok()) refusal = library.error();
  }
  return refusal.with_context(
      "oneCCL cannot be used (pip install oneccl-cpu==2021.16.2; HOROVOD_CCL_LIBRARY may name its "
      "libccl.so.1)");
}

// oneCCL does not need the default libfabric if it uses MPI or if a variable names another libfabric.
Status find_fabric() {
  if (environment_variable(kFabricVariable) ||
      environment_variable("CCL_ATL_TRANSPORT").value_or("ofi") != "ofi") {
    return {};
  }
  return SharedLibrary::try_open(kFabric, [](const SharedLibrary&) { return Status(); })
      .with_context(cat("oneCCL needs libfabric (apt-get install libfabric1; ", kFabricVariable,
                        " may name it)"));
}

}  // namespace

Result<CclApi> open_api() {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary library, open_library());
  CclApi api{SymbolFinder(library)};
  if (!api.find.missing().empty()) {
    return not_found(cat(api.library, " has no symbol ", api.find.missing(),
                         ": its interface is none of oneCCL 2021.14 to 2021.16"));
  }
  HVD_RETURN_IF_ERROR(find_fabric());
  const abi::Version version = api.get_version();
  api.title = cat("oneCCL ", version.major, ".", version.minor, ".", version.update);
  return api;
}

bool works_by_itself() { return environment_variable(kThreadsVariable).value_or("") != "0"; }

Status start(const CclApi& api, const hvd_plugin_host& host, const hvd_plugin_config& config) {
  const auto set_default = [](const char* variable, const std::string& value) {
    ::setenv(variable, value.c_str(), 0);
  };
  // Prevents oneCCL from taking ranks and sizes from the variables of an mpiexec.
  set_default("CCL_PROCESS_LAUNCHER", "none");
  set_default("CCL_LOCAL_RANK", cat(config.local_rank));
  set_default("CCL_LOCAL_SIZE", cat(std::max(config.local_size, config.local_rank + 1)));
  set_default("CCL_ATL_TRANSPORT", "ofi");
  set_default(kFabricVariable, kFabric);
  // Without worker threads of its own, oneCCL advances an operation in each test of its event.
  set_default(kThreadsVariable, "0");
  // At the default level oneCCL warns about each of these variables on every rank.
  set_default("CCL_LOG_LEVEL", "error");
  const char* interface = host.setting(host.host, "HOROVOD_GLOO_IFACE");
  if (interface != nullptr && *interface != '\0') set_default("FI_TCP_IFACE", interface);
  try {
    api.init.function(*api.init.defaults);
    return {};
  } catch (const std::exception& failure) {
    return unavailable(printable(failure.what(), kSentence));
  }
}

}  // namespace hvd::ops::ccl
