// Describes where a rank is for the launcher, which looks for hangs. Pure.
#pragma once

#include <string>

#include "launcher/agent/stacks/named_wait.h"
#include "launcher/protocol/host_signs.h"

namespace hvd::launcher {

// `signs`: without a stack where nobody could read one. `state`: what the kernel shows of its first process.
RankPlace place_of_rank(const WaitSigns& signs, const std::string& state);

}  // namespace hvd::launcher
