// Finds hosts of a job that are one machine under several names. Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// A sentence for each machine that has more than one name. `machines[i]` is host_identity() of host i;
// empty: unknown.
std::vector<std::string> describe_same_machines(const std::vector<std::string>& hosts,
                                                const std::vector<std::string>& machines);

}  // namespace hvd::launcher
