// Plans the CPUs of each rank of a host from its topology. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/agent/binding/host_topology.h"
#include "launcher/protocol/binding_choice.h"

namespace hvd::launcher {

struct RankCpus {
  std::vector<int> cpus{};  // ascending; empty: the rank is not bound
  int node =
      -1;  // the NUMA node of all its CPUs, where its memory is preferred; -1: several, or not bound
  int gpu =
      -1;  // the number of its GPU among the host's visible ones; -1: not bound to a GPU's CPUs
};

// Cores and ranks that plan_binding() must skip.
struct Excluded {
  std::set<int> cores{};     // the first CPUs of cores that are reserved
  std::set<size_t> ranks{};  // local ranks that another agent starts; they get no place
};

// Returns the places of the `ranks` ranks of a host, by local rank.
Result<std::vector<RankCpus>> plan_binding(const BindingChoice& choice,
                                           const HostTopology& topology, size_t ranks,
                                           const Excluded& excluded = {});

// Returns the cores that have at least one CPU in the place.
std::vector<const Core*> cores_of(const RankCpus& place, const HostTopology& topology);

// Returns the number of cores of each rank, at least 1: ranks with a common core share it equally, and all ranks share
// `quota`, the cores that the cgroup allows them at a time.
std::vector<int> cores_of_ranks(const std::vector<RankCpus>& places, const HostTopology& topology,
                                double quota);

// Returns "cpus 0-1 (2 cores of socket 0), memory of node 0 [BB/BB][../..]", for example.
std::string describe(const RankCpus& place, const HostTopology& topology);

}  // namespace hvd::launcher
