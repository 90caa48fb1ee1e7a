// Limits the descriptors that clients may use before they have authenticated.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace hvd::net {

// Returns a quarter of the soft limit, at most `most`.
inline size_t descriptor_share(size_t most) {
  constexpr rlim_t kPart = 4;
  constexpr size_t kLeast = 16;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return most;
  return std::min(most, std::max<size_t>(kLeast, descriptors.rlim_cur / kPart));
}

}  // namespace hvd::net
