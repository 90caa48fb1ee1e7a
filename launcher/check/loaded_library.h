// What this process has loaded: the files of libraries, and what a backend's says of itself.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// What is told of a part that was found.
struct ProbeFacts {
  std::string version, path;
};

// The first file mapped into this process whose name starts so, resolved: its name carries its
// version.
std::string mapped_file(std::string_view start);

// What libssh says of itself; empty where it cannot be loaded.
std::string version_of_libssh();

// Of a backend that a plugin of this name has opened; empty where it opens no library.
ProbeFacts find_backend(const std::string& name);

}  // namespace hvd::launcher
