// The cores and GPUs of this host, as hwloc finds them in /sys: only CPUs that the agent may use, because its affinity
// mask and its cgroup also limit the ranks. Only the .cpp file includes hwloc.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

struct hwloc_topology;

namespace hvd::launcher {

struct Core {
  std::vector<int> cpus{};  // numbers of its hardware threads, ascending; not empty
  int socket = 0;
  int node = 0;  // number of its NUMA node; -1: not known
  int kind = 0;  // a larger number is a faster kind of core
};

struct Gpu {
  std::string address{};    // PCI address, such as 0000:9a:00.0
  std::vector<int> cpus{};  // CPUs near it, ascending
};

struct HostTopology {
  std::vector<Core> cores{};
  std::vector<Gpu> gpus{};  // in the order of their addresses
};

// Converts a loaded topology. `allowed`: CPUs that may be used, ascending.
HostTopology convert(hwloc_topology* loaded, const std::vector<int>& allowed);

// Takes some milliseconds. Call it before ranks start: it changes this process's environment.
Result<HostTopology> read_host_topology(const std::vector<int>& allowed);

}  // namespace hvd::launcher
