// Names the processes of an elastic job by their ranks, in what an agent says about them. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace hvd::launcher {

// An agent heads each process by "rank N", where N is the number by which it was started. `rank_of` returns
// the rank that the process has now, or -1. The heads become "rank 1 (process 3)", or "process 3, not a rank".
std::string with_present_ranks(std::string_view text,
                               const std::function<int(int process)>& rank_of);

}  // namespace hvd::launcher
