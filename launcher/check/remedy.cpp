#include "launcher/check/remedy.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/installation.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// The packages of a row, by package manager. Empty: this package manager has no such package.
struct PackageSource {
  std::string_view row;
  std::string_view run_apt, run_dnf;      // packages for running the part
  std::string_view build_apt, build_dnf;  // further packages for building the part
  std::string_view pip;
};
constexpr std::array kSources = {
    PackageSource{"PyTorch", "python3-torch", "python3-torch", "", "", "torch"},
    PackageSource{"TensorFlow", "", "", "", "", "tensorflow"},
    PackageSource{"MXNet", "", "", "", "", "'mxnet==1.9.1' 'numpy<1.24'"},
    PackageSource{"JAX", "", "", "", "", "jax"},
    PackageSource{"MPI", "libopenmpi3", "openmpi", "libopenmpi-dev libmpich-dev", "openmpi-devel",
                  ""},
    PackageSource{"NCCL", "libnccl2", "libnccl", "", "", ""},
    PackageSource{"Python", "python3", "python3", "", "", ""},
    PackageSource{"PMIx", "libpmix2", "pmix", "libpmix-dev", "pmix-devel", ""},
    PackageSource{"libssh", "libssh-4", "libssh", "libssh-dev", "libssh-devel", ""},
    PackageSource{"CUDA", "nvidia-driver", "nvidia-driver", "", "", ""},
    PackageSource{"ROCm", "libamdhip64-5", "rocm-hip", "", "", ""},
};

std::string first_on_path(std::string_view program) {
  for (const std::string& folder : split(environment_variable("PATH").value_or(""), ':')) {
    std::error_code error;
    if (!folder.empty() && fs::exists(fs::path(folder) / program, error)) {
      return (fs::path(folder) / program).string();
    }
  }
  return {};
}

// Returns whether the kernel lists a display device or an accelerator of this vendor.
bool has_device_of(std::string_view vendor) {
  std::error_code error;
  for (fs::directory_iterator at("/sys/bus/pci/devices", error), end; !error && at != end;
       at.increment(error)) {
    std::string id, device_class;
    std::ifstream(at->path() / "vendor") >> id;
    std::ifstream(at->path() / "class") >> device_class;
    // 0x03....: display; 0x12....: accelerator.
    const bool computes = device_class.starts_with("0x03") || device_class.starts_with("0x12");
    if (id == vendor && computes) return true;
  }
  return false;
}

std::string installed_by(std::string_view apt, std::string_view dnf, const Machine& machine) {
  if (machine.has_apt && !apt.empty()) return cat("apt-get install ", apt);
  if (machine.has_dnf && !dnf.empty()) return cat("dnf install ", dnf);
  return {};
}

// Returns the fix for a framework that Python finds at `place` but cannot import.
std::string of_broken_framework(const PackageSource& source, const std::string& place,
                                const Machine& machine) {
  const bool is_installed = place.find("/site-packages/") != std::string::npos ||
                            place.find("/dist-packages/") != std::string::npos;
  if (!is_installed) return cat("move ", place, " away: Python imports it as ", source.row);
  const bool is_packaged = machine.has_system_python && place.starts_with("/usr/lib/");
  const std::string command =
      is_packaged ? installed_by(cat("--reinstall ", source.run_apt), "", machine) : "";
  return command.empty()
             ? cat(machine.python, " -m pip install --upgrade --force-reinstall ", source.pip)
             : command;
}

std::string of_framework(const PackageSource& source, const std::string& place,
                         const Machine& machine) {
  if (!place.empty()) return of_broken_framework(source, place, machine);
  if (machine.has_system_python) {
    std::string command = installed_by(source.run_apt, source.run_dnf, machine);
    if (!command.empty()) return command;
    return cat("python3 -m venv --system-site-packages venv && venv/bin/pip install ", source.pip,
               " && . venv/bin/activate");
  }
  return cat(machine.python, " -m pip install ", source.pip);
}

// Returns the fix for oneCCL on CPUs: the package from PyPI, and libfabric from the distribution.
std::string of_ccl(const Machine& machine) {
  const std::string fabric = installed_by("libfabric1", "libfabric", machine);
  return cat(fabric.empty() ? "install libfabric" : fabric,
             " && python3 -m venv ccl && ccl/bin/pip install --no-deps oneccl-cpu==2021.16.2 && "
             "export HOROVOD_CCL_LIBRARY=$PWD/ccl/lib/libccl.so.1");
}

std::string with_rebuild(const std::string& command, const Machine& machine) {
  const std::string again = machine.is_built_tree ? cat("cmake ", machine.build_folder,
                                                        " && cmake --build ", machine.build_folder)
                                                  : "build and install Horovod again";
  return command.empty() ? again : cat(command, " && ", again);
}

// Returns why no command can make the row work, or an empty text.
std::string hopeless(std::string_view row, bool has_part, const Machine& machine) {
  constexpr std::array<std::string_view, 4> kFrameworks = {"TensorFlow", "PyTorch", "MXNet", "JAX"};
  if (!has_part && std::ranges::find(kFrameworks, row) != kFrameworks.end())
    return cat("none: this version has no binding for ", row);
  if (row == "CCL" && !machine.is_x86_64) return "none: oneCCL supports only x86-64";
  if (row == "DDL") return "none: IBM has discontinued DDL";
  const bool has_gpu = machine.has_nvidia || machine.has_amd;
  if (row == "NCCL" && !has_gpu) return "none: this machine has no GPU";
  if (row == "CUDA" && !machine.has_nvidia) return "none: this machine has no NVIDIA GPU";
  if (row == "ROCm" && !machine.has_amd) return "none: this machine has no AMD GPU";
  return {};
}

}  // namespace

Machine this_machine(const std::string& python) {
  Machine machine;
  machine.has_apt = !first_on_path("apt-get").empty();
  machine.has_dnf = !first_on_path("dnf").empty();
  machine.has_nvidia = has_device_of("0x10de");
  machine.has_amd = has_device_of("0x1002");
  machine.python = python;
  machine.has_system_python = python == "/usr/bin/python3" || python == "/bin/python3";
  utsname kernel{};
  machine.is_x86_64 = ::uname(&kernel) == 0 && std::string_view(kernel.machine) == "x86_64";
  const fs::path build = fs::path(executable_folder()).parent_path();
  std::error_code error;
  machine.is_built_tree = fs::exists(build / "CMakeCache.txt", error);
  machine.build_folder = build.string();
  return machine;
}

std::string remedy(std::string_view row, bool has_part, const Machine& machine,
                   const std::string& place) {
  if (std::string why = hopeless(row, has_part, machine); !why.empty()) return why;
  if (row == "TCP" || row == "shared memory") {
    return "no installation helps: the kernel or the container refuses it";
  }
  if (row == "CCL") return has_part ? of_ccl(machine) : with_rebuild("", machine);
  const auto source = std::ranges::find(kSources, row, &PackageSource::row);
  if (source == kSources.end()) return with_rebuild("", machine);
  if (!source->pip.empty()) return of_framework(*source, place, machine);
  if (has_part || source->build_apt.empty()) {
    const std::string command = installed_by(source->run_apt, source->run_dnf, machine);
    const std::string words = command.empty() ? cat("install ", row, "'s library") : command;
    return has_part ? words : with_rebuild(words, machine);
  }
  const std::string command = installed_by(source->build_apt, source->build_dnf, machine);
  return with_rebuild(command, machine);
}

}  // namespace hvd::launcher
