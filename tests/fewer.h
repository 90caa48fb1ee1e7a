// Sanitized programs are ten times slower: they run only the first few of many similar cases.
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
