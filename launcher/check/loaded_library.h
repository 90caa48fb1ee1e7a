// Libraries that this process has loaded: their files, and the version that a backend's library
// reports.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// Facts about a component that was found.
struct ProbeFacts {
  std::string version, path;
  std::string note{};  // a remark if the version is newer than all tested versions
};

// Returns the path of the first library mapped into this process whose file name starts with `start`. Resolves symbolic
// links: the name of the final file has the version.
std::string mapped_file(std::string_view start);

// Returns the version that libssh reports; empty if libssh cannot be loaded.
std::string version_of_libssh();

// Returns facts about the library that the plugin of this name has opened; empty if the plugin opens no library.
ProbeFacts find_backend(const std::string& name);

}  // namespace hvd::launcher
