// The program that a host of `horovodrun doctor` runs as its rank: `horovod-agent --doctor LEVEL HOSTS [COMMAND]`. It prints
// the facts of the host and the measurements of its links, each as a JSON object in a line (docs/doctor.md). Rank 0
// orders the measurements: the others connect to it at MASTER_ADDR and MASTER_PORT, and one host takes part in one
// measurement at a time. Reads the ranks' variables.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// `hosts`: the names of all hosts, separated by commas. `command`: the program of the job; may be empty. Returns the exit
// code, which says only whether the examination ran.
int examine_host(const std::string& level, const std::string& hosts,
                 const std::vector<std::string>& command);

}  // namespace hvd::launcher
