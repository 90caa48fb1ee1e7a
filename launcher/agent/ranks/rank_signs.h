// Reads counters that grow while the ranks' processes work, from /proc and sock_diag. Stops and wakes no process.
#pragma once

#include <sys/types.h>

#include <utility>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// Returns the counters of each rank. `ranks`: pairs of a rank and its first process.
std::vector<RankSigns> signs_of(const std::vector<std::pair<int, pid_t>>& ranks);

}  // namespace hvd::launcher
