// The processor cores of this process (affinity mask, cgroup quotas) and the GPUs of its host,
// without a vendor's library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

// Returns the number of cores of the affinity mask, at least 1.
int affinity_cores();
// Returns the number of cores of the cpuset, for example of a container or a Slurm job. Briefly sets the affinity of
// the calling thread to all cores.
int cpuset_cores();
// Returns the number of cores of the affinity mask, limited by the cgroup quotas; may be a fraction.
double available_cores();
// Returns the folders of a process's cgroup and of its ancestors, innermost first, from the text of /proc/PID/cgroup.
// `controller`: "cpu" or "memory". In a container, the first folders may not exist, because /sys/fs/cgroup then begins
// at the container's cgroup.
std::vector<std::string> cgroup_folders(std::string_view cgroups, std::string_view controller);
// Returns the quota in the text of a cgroup's cpu.max ("max 100000", "50000 100000"); a large number for "max" or an
// invalid text.
double cores_of_cpu_max(const std::string& text);

// Counts NVIDIA's device files or, if there are none, AMD's GPU nodes, below the folder `root`.
int count_gpus(const std::string& root = "/");

// Returns ok if a GPU driver's files exist, or if HOROVOD_CUDA_LIBRARY is set. Does not call CUDA: the first call would
// read CUDA_VISIBLE_DEVICES, and forked children could not use CUDA afterwards.
Status find_gpu_driver();

// Returns how many of `count` GPUs CUDA_VISIBLE_DEVICES (or AMD's variable) selects; all if it is
// unset. As in the drivers, the list ends at the first invalid item.
int visible_gpus(int count, const std::optional<std::string>& visible);

// Returns a host's number of ranks: its usable cores for "cpu"; its GPUs, or else its cores, for "gpu" and "auto".
int ranks_for(std::string_view device, int gpus, double cores);

}  // namespace hvd
