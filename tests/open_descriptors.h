// The open descriptors of this process, so that a test finds leaks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace hvd::test {

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(files, std::filesystem::directory_iterator()));
}

}  // namespace hvd::test
