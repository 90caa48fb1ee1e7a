// Reads signs of progress of the ranks' processes from /proc and sock_diag. Stops and wakes no process.
#pragma once

#include <sys/types.h>

#include <utility>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// `ranks`: their numbers and first processes. The agent calls it.
std::vector<RankSigns> signs_of(const std::vector<std::pair<int, pid_t>>& ranks);

}  // namespace hvd::launcher
