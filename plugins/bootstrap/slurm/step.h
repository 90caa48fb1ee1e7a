// Parses the Slurm variables of a step of srun. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::bootstrap {

// Returns the hosts of a list in Slurm's format: "n[01-02,20],gpu3" gives n01, n02, n20 and gpu3.
Result<std::vector<std::string>> hosts_of_step(std::string_view nodelist);

// Returns the number of tasks of a node: "2(x3),1" gives 2 for nodes 0 to 2 and 1 for node 3.
Result<int32_t> tasks_of_node(std::string_view tasks_per_node, int64_t node);

// The ports at which a step's rank 0 may listen, in order of preference. Few steps of a cluster
// have an equal port, and the kernel never assigns these ports itself.
constexpr int kStepPorts = 4;
uint16_t port_of_step(int64_t job, int64_t step, int attempt);

}  // namespace hvd::bootstrap
