// Reads from /proc what processes have used. Stops no process, and waits for none.
#pragma once

#include <vector>

#include "launcher/agent/host/process_tree.h"
#include "launcher/protocol/host_metrics.h"

namespace hvd::launcher {

// The sum over these processes, which one has started, and over the children for which they have waited.
ProcessUsage usage_of(const std::vector<ProcessEntry>& processes);
// Raises the counts to those of `now`, and takes its other values.
void advance(ProcessUsage& usage, const ProcessUsage& now);

}  // namespace hvd::launcher
