// Reads from /proc and sock_diag whether the processes of ranks move. Stops and wakes no process.
#pragma once

#include <sys/types.h>

#include <utility>
#include <vector>

#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// `ranks`: their numbers and first processes. The agent calls it.
std::vector<RankSigns> signs_of(const std::vector<std::pair<int, pid_t>>& ranks);

}  // namespace hvd::launcher
