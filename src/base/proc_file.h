// Reads small files of /proc and /sys.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/unique_fd.h"

namespace hvd {

// Returns the content of the file, truncated if the file is large; empty if it cannot be read.
inline std::string read_proc_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t size = file ? ::read(file.get(), buffer.data(), buffer.size()) : -1;
  return std::string(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
}

// Returns the first `limit` bytes of a file that may be long, for example /proc/PID/maps; empty if it cannot be read.
inline std::string read_large_proc_file(const std::string& path, size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 16384> buffer;
  while (file && content.size() < limit) {
    const size_t rest = std::min(buffer.size(), limit - content.size());
    const ssize_t size = ::read(file.get(), buffer.data(), rest);
    if (size <= 0) break;
    content.append(buffer.data(), static_cast<size_t>(size));
  }
  return content;
}

}  // namespace hvd
