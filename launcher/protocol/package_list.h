// The file list of a package horovod that a launcher sends to hosts: one line per file, with the hash
// of its content, its size, its mode and its path. The hash of the list names the package. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/secrets/hmac.h"

namespace hvd::launcher {

struct PackageFile {
  std::string path;  // in the package
  uint32_t mode = 0644;
  uint64_t size = 0;
  Digest digest{};
  friend bool operator==(const PackageFile&, const PackageFile&) = default;
};

// The folders in a copy of the package horovod, for PYTHONPATH, and of its library.
inline constexpr std::string_view kPackagePython = "python";
inline constexpr std::string_view kPackageLibrary = "lib";

std::string format_package_list(const std::vector<PackageFile>& files);
inline constexpr uint64_t kMostPackageBytes = 1 << 30;
// Limit for an environment: frameworks with their CUDA libraries have several GB.
inline constexpr uint64_t kMostEnvironmentBytes = uint64_t{1} << 40;
// Refuses a path outside the package, and file sizes whose sum is above `most`.
Result<std::vector<PackageFile>> parse_package_list(std::string_view text,
                                                    uint64_t most = kMostPackageBytes);
// Returns the first 32 hexadecimal digits of the hash of the list.
std::string package_name(std::string_view list);
uint64_t size_of_package(const std::vector<PackageFile>& files);

}  // namespace hvd::launcher
