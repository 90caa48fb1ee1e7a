// The limit of open descriptors of this process. Each connection needs one, and the usual soft limit is
// 1,024.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace hvd::rendezvous {

// Raises the soft limit to `wanted`, at most to the hard limit; never lowers it. Returns the former
// limits, for children that expect them.
inline rlimit raise_descriptor_limit(rlim_t wanted = RLIM_INFINITY) {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return before;
  rlimit limit = before;
  limit.rlim_cur = std::max(before.rlim_cur, std::min(wanted, before.rlim_max));
  if (limit.rlim_cur != before.rlim_cur) ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

}  // namespace hvd::rendezvous
