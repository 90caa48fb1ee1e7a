// The limit of open descriptors of this process. Each connection needs a descriptor, and the usual
// soft limit is 1,024.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace hvd {

inline rlimit descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

// Returns the limits at the first call, which raise_descriptor_limit() makes before it raises them.
inline const rlimit& first_descriptor_limit() {
  static const rlimit first = descriptor_limit();
  return first;
}

// Raises the soft limit to `wanted`, at most to the hard limit; never lowers it. Returns the limits
// before the first raise, for children that expect them.
inline rlimit raise_descriptor_limit(rlim_t wanted = RLIM_INFINITY) {
  const rlimit first = first_descriptor_limit();
  const rlimit before = descriptor_limit();
  rlimit limit = before;
  limit.rlim_cur = std::max(before.rlim_cur, std::min(wanted, before.rlim_max));
  if (limit.rlim_cur != before.rlim_cur) ::setrlimit(RLIMIT_NOFILE, &limit);
  return first;
}

// Returns the number of descriptors that clients may use before they have authenticated: a quarter of the soft limit,
// at least 16 and at most `most`.
inline size_t descriptor_share(size_t most) {
  constexpr rlim_t kPart = 4;
  constexpr size_t kLeast = 16;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return most;
  return std::min(most, std::max<size_t>(kLeast, descriptors.rlim_cur / kPart));
}

// While this object exists, programs started by this process get the limits before the first raise. Open descriptors
// stay open.
class FirstDescriptorLimit {
 public:
  FirstDescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &first_descriptor_limit()); }
  ~FirstDescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &raised_); }
  FirstDescriptorLimit(const FirstDescriptorLimit&) = delete;
  FirstDescriptorLimit& operator=(const FirstDescriptorLimit&) = delete;

 private:
  const rlimit raised_ = descriptor_limit();
};

}  // namespace hvd
