// Reads small files of /proc and /sys.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/unique_fd.h"

namespace hvd {

// Content of the file, or its beginning if the file is large; empty when it cannot be read.
inline std::string read_proc_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t size = file ? ::read(file.get(), buffer.data(), buffer.size()) : -1;
  return std::string(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
}

}  // namespace hvd
