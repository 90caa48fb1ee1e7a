// Describes where a rank is for the launcher, which detects hangs. Pure.
#pragma once

#include <string>

#include "launcher/agent/stacks/named_wait.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// `signs` has no stack if the stack could not be read. `state`: the kernel state of the rank's first process.
RankPlace place_of_rank(const WaitSigns& signs, const std::string& state);

}  // namespace hvd::launcher
