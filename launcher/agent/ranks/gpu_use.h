// The use of this host's GPUs by processes, as text of nvidia-smi and as values. Pure; the parser accepts any text.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct GpuUse {
  struct OfProcess {
    pid_t pid = -1;
    std::string gpu;  // its UUID
    uint64_t bytes = 0;
  };
  std::map<std::string, int> percents;  // of the time in which a GPU computed, by UUID
  std::vector<OfProcess> processes;

  // The memory of these processes, on all GPUs.
  uint64_t bytes_of(const std::vector<pid_t>& pids) const;
  // The percentage of the busiest GPU that one of them uses; -1: they use none, or it is unknown.
  int percent_of(const std::vector<pid_t>& pids) const;
};

// A command for sh that prints what parse_gpu_use() reads.
std::string gpu_use_command(const std::string& nvidia_smi);
GpuUse parse_gpu_use(std::string_view text);

}  // namespace hvd::launcher
