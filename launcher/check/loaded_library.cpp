#include "launcher/check/loaded_library.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "base/shared_library.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// Returns "40.30.4" for libmpi.so.40.30.4.
std::string version_of_file(const std::string& path) {
  const size_t at = path.rfind(".so.");
  return at == std::string::npos ? "" : path.substr(at + 4);
}

// Returns "Open MPI v4.1.4" or "MPICH 4.0.2", which an MPI reports even before its initialisation; else an empty text.
std::string version_of_mpi(const SharedLibrary& library) {
  constexpr size_t kRoomForAny = 16 * 1024;
  auto* version_function = library.symbol("MPI_Get_library_version");
  std::string text(kRoomForAny, '\0');
  int length = 0;
  if (version_function == nullptr ||
      reinterpret_cast<int (*)(char*, int*)>(version_function)(text.data(), &length) != 0) {
    return {};
  }
  text.resize(std::min(text.find('\0'), text.find_first_of(",\n")));
  std::replace(text.begin(), text.end(), '\t', ' ');
  constexpr std::string_view kWord = " Version: ";
  if (const size_t at = text.find(kWord); at != std::string::npos)
    text.replace(at, kWord.size(), " ");
  return text;
}

// Also names another installed MPI, because ranks use the MPI of the program that starts them.
ProbeFacts find_mpi() {
  std::string path = mapped_file("libmpi.so");
  if (path.empty()) path = mapped_file("libmpich.so");
  const auto library = SharedLibrary::open(path);
  if (path.empty() || !library.ok()) return {};
  std::string version = version_of_mpi(*library);
  if (version.empty()) version = version_of_file(path);
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
    std::string other;
    static_cast<void>(SharedLibrary::try_open(name, [&](const SharedLibrary& each) {
      other = version_of_mpi(each);
      return Status();
    }));
    if (other.empty() || other == version) continue;
    return {cat(version, " (", other, " is here too)"), path};
  }
  return {version, path};
}

// Returns the version that the library reports ("2.18.5" for 21805). The library's file name is less exact.
std::string version_of_nccl(const std::string& path) {
  const auto library = SharedLibrary::open(path);
  auto* version_function = library.ok() ? library->symbol("ncclGetVersion") : nullptr;
  int version = 0;
  if (version_function == nullptr ||
      reinterpret_cast<int (*)(int*)>(version_function)(&version) != 0)
    return {};
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// oneCCL's C++ function returns a struct.
std::string version_of_ccl(const std::string& path) {
  struct Version {
    unsigned major, minor, update;
    const char* words[3];
    size_t length;
    char* backend;
    ~Version() { delete[] backend; }
  };
  const auto library = SharedLibrary::open(path);
  auto* version_function =
      library.ok() ? library->symbol("_ZN3ccl2v119get_library_versionEv") : nullptr;
  if (version_function == nullptr) return {};
  const Version version = reinterpret_cast<Version (*)()>(version_function)();
  return cat(version.major, ".", version.minor, ".", version.update);
}

}  // namespace

std::string version_of_libssh() {
  const auto library = SharedLibrary::open("libssh.so.4");
  auto* version_function = library.ok() ? library->symbol("ssh_version") : nullptr;
  return version_function == nullptr ? ""
                                     : reinterpret_cast<const char* (*)(int)>(version_function)(0);
}

std::string mapped_file(std::string_view start) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const fs::path path = line.substr(slash);
    if (!start.empty() && path.filename().string().starts_with(start)) return path.string();
  }
  return {};
}

ProbeFacts find_backend(const std::string& name) {
  if (name == "nccl") {
    std::string path(trim(environment_variable("HOROVOD_NCCL_LIBRARY").value_or("")));
    // torch may contain a statically linked NCCL.
    for (const char* start : {"libnccl.so", "librccl.so", "libtorch_cuda.so"}) {
      if (path.empty()) path = mapped_file(start);
    }
    return {version_of_nccl(path), path};
  }
  if (name == "ccl") {
    const std::string path = mapped_file("libccl.so");
    return {version_of_ccl(path), path};
  }
  if (name == "mpi") return find_mpi();
  const std::string path = name == "gloo" ? mapped_file("libgloo") : "";
  return {version_of_file(path), path};
}

}  // namespace hvd::launcher
