#include "launcher/check/probes.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <vector>

#include "base/shared_library.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/check/single_rank_world.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/worker_env.h"
#include "launcher/spawn/ssh/ssh_session.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// Prints the framework's location before importing it, since the import may end the process or hang.
constexpr char kImport[] =
    "import importlib.util, os, sys\n"
    "spec = importlib.util.find_spec(sys.argv[2])\n"
    "os.write(2, f'horovod-place\\t{spec and spec.origin or str()}\\n'.encode())\n"
    "importlib.import_module('horovod.' + sys.argv[1] if spec else sys.argv[2])\n"
    "module = importlib.import_module(sys.argv[2])\n"
    "version = getattr(module, '__version__', '')\n"
    "path = os.path.dirname(getattr(module, '__file__', None) or '')\n"
    "try:\n"
    "    from horovod._tested import note\n"
    "    path += '\\t' + (note(sys.argv[2], version) or '')\n"
    "except ImportError:\n"
    "    pass\n"
    "os.write(2, f'\\nhorovod-found\\t{version}\\t{path}\\n'.encode())\n"
    "os._exit(0)\n";
constexpr char kInterpreter[] =
    "import os, sys\n"
    "version = '.'.join(map(str, sys.version_info[:3]))\n"
    "os.write(2, f'\\nhorovod-found\\t{version}\\t{sys.argv[1]}\\n'.encode())\n";
constexpr std::string_view kFound = "horovod-found\t";
constexpr std::string_view kPlace = "horovod-place\t";

// Returns the text after the mark on the last line that begins with the mark.
std::optional<std::string> marked(const std::string& text, std::string_view mark) {
  std::optional<std::string> found;
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with(mark)) found = line.substr(mark.size());
  }
  return found;
}

// Removes the variables of a rank: the launcher may itself be a rank of a job, and the child must not act as this rank.
void forget_identity() {
  for (const auto& [name, value] : environment()) {
    if (host_environment({{name, value}}, true).empty()) forget_environment_variable(name);
  }
}

// Two floats that both the first GPU and the host can access, allocated by the runtime that a plugin has opened.
float* managed_floats() {
  const std::string wanted(trim(environment_variable("HOROVOD_CUDA_LIBRARY").value_or("")));
  for (const auto& [start, function] : {std::pair{"libcudart.so", "cudaMallocManaged"},
                                        std::pair{"libamdhip64.so", "hipMallocManaged"}}) {
    const std::string path = wanted.empty() ? mapped_file(start) : wanted;
    const auto library = SharedLibrary::open(path);
    void* take = path.empty() || !library.ok() ? nullptr : library->symbol(function);
    void* memory = nullptr;
    constexpr unsigned kFromAnyStream = 1;
    if (take != nullptr && reinterpret_cast<int (*)(void**, size_t, unsigned)>(take)(
                               &memory, 2 * sizeof(float), kFromAnyStream) == 0) {
      return static_cast<float*>(memory);
    }
  }
  return nullptr;
}

// Opens the first library that can be opened, and returns the result of `body`, or an error if the library lacks one of
// `symbols`. If none can be opened, returns the error of the last library that exists, or else of the first one.
std::string try_library(std::span<const char* const> names,
                        std::initializer_list<const char*> symbols,
                        const std::function<std::string(const SharedLibrary&)>& body) {
  std::string why;
  for (const char* name : names) {
    auto library = SharedLibrary::open(name);
    if (!library.ok()) {
      const std::string& output = library.status().message();
      const bool is_absent = output.find("No such file") != std::string::npos;
      if (why.empty() || !is_absent) why = output;
      continue;
    }
    for (const char* symbol : symbols) {
      if (library->symbol(symbol) == nullptr) return cat(name, " has no function ", symbol);
    }
    return body(*library);
  }
  return why;
}

constexpr const char* kPmixLibraries[] = {"libpmix.so.2"};
constexpr const char* kSshLibraries[] = {"libssh.so.4"};
constexpr const char* kCudaDrivers[] = {"libcuda.so.1"};  // the name libcuda.so may be a stub
// The names for ROCm 7, 6 and 5, and the name in a development package.
constexpr const char* kHipRuntimes[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                        "libamdhip64.so"};

template <typename Function>
Function function(const SharedLibrary& library, const char* symbol) {
  return reinterpret_cast<Function>(library.symbol(symbol));
}

std::string device_count(const char* runtime, int status, int count, int version,
                         const std::string& file) {
  if (status != 0) return cat(runtime, " answers with error ", status);
  if (count == 0) return cat(runtime, " finds no GPU");
  return report_found(cat(version), mapped_file(file));
}

}  // namespace

std::string report_found(const std::string& version, const std::string& path) {
  const std::string line = cat("\n", kFound, version, "\t", path, "\n");
  return ::write(STDERR_FILENO, line.data(), line.size()) < 0 ? "cannot report" : "";
}

std::optional<ProbeFacts> parse_found(const std::string& output) {
  const auto line = marked(output, kFound);
  auto fields = split(line.value_or(""), '\t');
  if (fields.size() < 2) return {};
  fields.resize(3);
  return ProbeFacts{fields[0], fields[1], fields[2]};
}

std::string parse_place(const std::string& output) { return marked(output, kPlace).value_or(""); }

CheckProbes::CheckProbes(const LaunchSettings& settings, std::string python)
    : python_(std::move(python)) {
  const std::string folder = executable_folder();
  const std::string chosen = settings.libraries.library;
  library_ = find_library(folder, chosen);
  looked_for_ = chosen.empty() ? installed_library(folder) : chosen;
  plugin_path_ = settings.libraries.plugin_path;
  const std::string inherited = environment_variable("PYTHONPATH").value_or("");
  const std::string package = find_python_package(folder);
  python_path_ =
      inherited.empty() || package.empty() ? inherited + package : cat(inherited, ":", package);
}

Probe CheckProbes::framework(const std::string& name, const std::string& module) const {
  return Probe([&] {
    forget_identity();
    Environment environment;
    if (!python_path_.empty()) environment.emplace_back("PYTHONPATH", python_path_);
    return become({python_, "-c", kImport, name, module}, environment);
  });
}

Probe CheckProbes::interpreter() const {
  return Probe([&] {
    forget_identity();
    return become({python_, "-c", kInterpreter, python_}, {});
  });
}

Probe CheckProbes::built_in(bool with_sum) const {
  return Probe([&] {
    forget_identity();
    if (library_.empty()) return cat("libhorovod.so is not at ", looked_for_);
    std::string why = try_single_rank_world(library_, with_sum);
    if (!why.empty()) return why;
    const ProbeFacts gloo = find_backend("gloo");
    return gloo.path.empty() ? report_found(cat("built in, ", HVD_VERSION), library_)
                             : report_found(gloo.version, gloo.path);
  });
}

// Returns what is missing; empty if the library exists and has the capability.
std::string CheckProbes::lacks(const std::string& capability) const {
  if (library_.empty()) return cat("libhorovod.so is not at ", looked_for_);
  return ask_capability(library_, capability);
}

std::string CheckProbes::try_backend(const std::string& name,
                                     const std::function<std::string()>& test) const {
  forget_identity();
  if (std::string why = lacks(name); !why.empty()) return why;
  if (std::string why = test(); !why.empty()) return why;
  const ProbeFacts found = find_backend(name);
  return report_found(found.version, found.path);
}

Probe CheckProbes::backend(const std::string& name, const std::string& variable,
                           bool with_sum) const {
  return Probe([&] {
    return try_backend(name, [&]() -> std::string {
      if (variable.empty()) return {};
      ::setenv(variable.c_str(), name.c_str(), 1);
      return try_single_rank_world(library_, with_sum);
    });
  });
}

Probe CheckProbes::gpu_backend(const std::string& name) const {
  return Probe([&] {
    return try_backend(name, [&] {
      ::setenv("HOROVOD_GPU_OPERATIONS", name.c_str(), 1);
      return try_single_rank_world(library_, true, {0, &managed_floats});
    });
  });
}

Probe CheckProbes::own(const std::string& name) const {
  return Probe([&] {
    const std::string why = lacks(name);
    return why.empty() ? report_found("", "") : why;
  });
}

Probe CheckProbes::pmix() const {
  const bool has_part = has_plugin("pmix");
  return Probe([has_part]() -> std::string {
    if (!has_part)
      return "this installation has no bootstrap plugin pmix in lib/horovod/bootstraps";
    return try_library(
        kPmixLibraries, {"PMIx_Init", "PMIx_server_init", "PMIx_Get_version"},
        [](const SharedLibrary& library) {
          const auto version = function<const char* (*)()>(library, "PMIx_Get_version");
          // "OpenPMIx 4.2.2 (...)"
          const auto words = split(version(), ' ');
          return report_found(words.size() > 1 ? words[1] : words[0], mapped_file("libpmix.so"));
        });
  });
}

Probe CheckProbes::libssh() const {
  return Probe([]() -> std::string {
    if (!SshSession::is_built()) {
      return "this horovodrun is built without libssh (HVD_LIBSSH of CMake): the ssh program "
             "reaches hosts";
    }
    return try_library(kSshLibraries, {"ssh_version"}, [](const SharedLibrary& library) {
      // "0.10.6/openssl/zlib"
      const std::string version = function<const char* (*)(int)>(library, "ssh_version")(0);
      return report_found(version.substr(0, version.find('/')), mapped_file("libssh.so"));
    });
  });
}

Probe CheckProbes::cuda() const {
  return Probe([] {
    return try_library(kCudaDrivers, {"cuInit", "cuDeviceGetCount", "cuDriverGetVersion"},
                       [](const SharedLibrary& library) {
                         int count = 0, version = 0;
                         int status = function<int (*)(unsigned)>(library, "cuInit")(0);
                         if (status == 0) {
                           status = function<int (*)(int*)>(library, "cuDeviceGetCount")(&count);
                         }
                         function<int (*)(int*)>(library, "cuDriverGetVersion")(&version);
                         return device_count("CUDA's driver", status, count, version, "libcuda.so");
                       });
  });
}

Probe CheckProbes::rocm() const {
  return Probe([] {
    return try_library(kHipRuntimes, {"hipGetDeviceCount", "hipRuntimeGetVersion"},
                       [](const SharedLibrary& library) {
                         int count = 0, version = 0;
                         const int status =
                             function<int (*)(int*)>(library, "hipGetDeviceCount")(&count);
                         function<int (*)(int*)>(library, "hipRuntimeGetVersion")(&version);
                         return device_count("HIP", status, count, version, "libamdhip64.so");
                       });
  });
}

bool CheckProbes::has_binding(const std::string& name) const {
  std::error_code error;
  for (const std::string& folder : split(python_path_, ':')) {
    if (!folder.empty() && fs::exists(fs::path(folder) / "horovod" / name, error)) return true;
  }
  return false;
}

bool CheckProbes::has_plugin(const std::string& name) const {
  std::vector<std::string> folders = split(plugin_path_, ':');
  const fs::path beside = fs::path(library_).parent_path() / "horovod";
  folders.push_back((beside / "plugins").string());
  folders.push_back((beside / "ops").string());
  folders.push_back((beside / "controllers").string());
  folders.push_back((beside / "bootstraps").string());
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      const std::string file = at->path().filename().string();
      if (file == name + ".so" || file.starts_with(name + "_")) return true;
    }
  }
  return false;
}

}  // namespace hvd::launcher
