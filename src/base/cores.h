// The processor cores that this process has: the affinity mask, and the quotas of its cgroups. The GPUs of its host,
// without a library of their vendor.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// Cores of the affinity mask, at least 1.
int affinity_cores();
// Cores that the affinity mask could have: those of the cpuset, as of a container or a job of Slurm. The
// calling thread has all of them for a moment.
int cpuset_cores();
// The affinity mask, cut by the quotas of the cgroups: perhaps a fraction.
double available_cores();
// The quota in the text of a cgroup's cpu.max ("max 100000", "50000 100000"); a large number without limit.
double cores_of_cpu_max(const std::string& text);

// The devices of NVIDIA's driver, or else the nodes of AMD's with a GPU, below `root`.
int count_gpus(const std::string& root = "/");

// Looks for the files of a GPU driver. Calls no function of CUDA, because the first such call reads
// CUDA_VISIBLE_DEVICES and children that the process forks afterwards cannot use CUDA. Trusts a CUDA
// runtime that HOROVOD_CUDA_LIBRARY names. The error says what is missing.
Status find_gpu_driver();

// The GPUs among `count` that CUDA_VISIBLE_DEVICES or its like names; unset: all. As for the drivers, the list ends at
// the first item that is no device.
int visible_gpus(int count, const std::optional<std::string>& visible);

// The ranks of a host for "cpu", its usable cores, or for "gpu" and "auto": its GPUs, else those cores.
int ranks_for(std::string_view device, int gpus, double cores);

}  // namespace hvd
