// For ranks whose programs began with other variables than the launcher's: decides whether these ranks can still meet
// by env:// of torch.distributed, and describes the differences. A script may set the variables of all ranks, or divide
// the ranks into several worlds: this is not an error. Pure.
#pragma once

#include <string>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

// Returns whether the ranks make whole worlds: ranks with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE have
// different values of RANK, and their number is WORLD_SIZE. A single world may be larger, because another launcher may
// start its other ranks. Ranks without RANK and WORLD_SIZE, or with a world of one, need no others. Also returns true
// if the agents have not read the variables of all ranks.
bool makes_whole_worlds(const HostTable& hosts);
// Returns a sentence about the ranks with other variables. Returns an empty text if the ranks make whole worlds, and
// the values of LOCAL_RANK on each host are all distinct or all the same, or if variables are unknown.
std::string changed_variables(const HostTable& hosts);

}  // namespace hvd::launcher
