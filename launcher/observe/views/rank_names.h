// Names the processes of an elastic job by their ranks in the text of an agent. Pure.
#pragma once

#include <string>
#include <string_view>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

// Replaces the numbers of processes in an agent's text, which begins each paragraph with "rank N" (N: number in the
// table). The result has "rank 1 (process 3)", or "process 3, not a rank".
std::string with_present_ranks(std::string_view text, const HostTable& hosts);

}  // namespace hvd::launcher
