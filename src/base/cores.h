// The processor cores of this process (affinity mask, cgroup quotas) and the GPUs of its host,
// without a vendor's library.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// Returns the number of cores of the affinity mask, at least 1.
int affinity_cores();
// Returns the number of cores of the cpuset, for example of a container or a Slurm job. Briefly sets the affinity of
// the calling thread to all cores.
int cpuset_cores();
// Returns the number of cores of the affinity mask, limited by the cgroup quotas; may be a fraction.
double available_cores();
// Returns the quota in the text of a cgroup's cpu.max ("max 100000", "50000 100000"); a large number for "max".
double cores_of_cpu_max(const std::string& text);

// Counts the devices of NVIDIA's driver, or else AMD's GPU nodes, below the folder `root`.
int count_gpus(const std::string& root = "/");

// Looks for the files of a GPU driver. Does not call CUDA: the first call would read
// CUDA_VISIBLE_DEVICES, and forked children could not use CUDA afterwards. Trusts a CUDA runtime
// that HOROVOD_CUDA_LIBRARY names. An error names the missing part.
Status find_gpu_driver();

// Returns how many of `count` GPUs CUDA_VISIBLE_DEVICES (or AMD's variable) selects; all if it is
// unset. As in the drivers, the list ends at the first invalid item.
int visible_gpus(int count, const std::optional<std::string>& visible);

// Returns a host's number of ranks: its usable cores for "cpu"; its GPUs, or else its cores, for "gpu" and "auto".
int ranks_for(std::string_view device, int gpus, double cores);

}  // namespace hvd
