#include "launcher/agent/binding/host_topology.h"

namespace hvd::launcher {

Result<HostTopology> read_host_topology(const std::vector<int>&) {
  return failed_precondition(
      "this build of the agent has no hwloc, which finds the cores of a host; install hwloc's "
      "header and libhwloc.a and build it again, or leave --bind-to out");
}

}  // namespace hvd::launcher
