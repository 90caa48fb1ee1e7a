// The list of the files of a package horovod that a launcher sends to hosts: one line for each file, with the hash of
// its content, its size, its mode and its path. The hash of the list names the package. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/secrets/hmac.h"

namespace hvd::launcher {

struct PackageFile {
  std::string path;  // within the package
  uint32_t mode = 0644;
  uint64_t size = 0;
  Digest digest{};
  friend bool operator==(const PackageFile&, const PackageFile&) = default;
};

// The folder of a copy that holds the package horovod, for PYTHONPATH, and that of its library.
inline constexpr std::string_view kPackagePython = "python";
inline constexpr std::string_view kPackageLibrary = "lib";

std::string format_package_list(const std::vector<PackageFile>& files);
inline constexpr uint64_t kMostPackageBytes = 1 << 30;
// Frameworks with their libraries of CUDA have several GB.
inline constexpr uint64_t kMostEnvironmentBytes = uint64_t{1} << 40;
// Refuses a path outside of the package, and files of more bytes than `most` together.
Result<std::vector<PackageFile>> parse_package_list(std::string_view text,
                                                    uint64_t most = kMostPackageBytes);
// The first 32 hexadecimal digits of the hash of the list.
std::string package_name(std::string_view list);
// The bytes of all files.
uint64_t size_of_package(const std::vector<PackageFile>& files);

}  // namespace hvd::launcher
