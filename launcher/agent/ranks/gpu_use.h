// The use of this host's GPUs by processes, parsed from the output of nvidia-smi. Pure; the parser accepts any text.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct GpuUse {
  struct OfProcess {
    pid_t pid = -1;
    std::string gpu;  // UUID of the GPU
    uint64_t bytes = 0;
  };
  std::map<std::string, int> percents;  // UUID -> percentage of the time in which the GPU computed
  std::vector<OfProcess> processes;

  // Returns the memory that these processes use on all GPUs.
  uint64_t bytes_of(const std::vector<pid_t>& pids) const;
  // Returns the percentage of the busiest GPU that these processes use; -1: they use no GPU, or it is unknown.
  int percent_of(const std::vector<pid_t>& pids) const;
};

// Returns a shell command that prints the input of parse_gpu_use().
std::string gpu_use_command(const std::string& nvidia_smi);
GpuUse parse_gpu_use(std::string_view text);

// Returns a shell command that prints the use of this host's AMD GPUs by processes, for parse_rocm_use().
std::string rocm_use_command(const std::string& rocm_smi);
// Parses any text. Identifies a GPU by its number in the text instead of a UUID. Returns nullopt if the text contains
// no GPU.
std::optional<GpuUse> parse_rocm_use(std::string_view text);

}  // namespace hvd::launcher
