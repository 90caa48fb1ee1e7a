// Sanitized programs are ten times as slow: they run the first few of many cases that are alike.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd::test {

template <typename T>
std::vector<T> fewer(std::vector<T> all, size_t when_sanitized) {
  if (HVD_TEST_SANITIZED != 0 && all.size() > when_sanitized) all.resize(when_sanitized);
  return all;
}

}  // namespace hvd::test
