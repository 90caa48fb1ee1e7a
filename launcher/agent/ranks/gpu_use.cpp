#include "launcher/agent/ranks/gpu_use.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// No host has more lines than this.
constexpr size_t kMostLines = 4096;

bool has(const std::vector<pid_t>& pids, pid_t pid) {
  return std::ranges::find(pids, pid) != pids.end();
}

}  // namespace

uint64_t GpuUse::bytes_of(const std::vector<pid_t>& pids) const {
  uint64_t bytes = 0;
  for (const OfProcess& one : processes) {
    if (has(pids, one.pid)) bytes += one.bytes;
  }
  return bytes;
}

int GpuUse::percent_of(const std::vector<pid_t>& pids) const {
  int percent = -1;
  for (const OfProcess& one : processes) {
    const auto found = percents.find(one.gpu);
    if (has(pids, one.pid) && found != percents.end()) percent = std::max(percent, found->second);
  }
  return percent;
}

std::string gpu_use_command(const std::string& nvidia_smi) {
  const std::string program = shell_quote(nvidia_smi);
  const std::string form = " --format=csv,noheader,nounits";
  return cat(program, " --query-gpu=uuid,utilization.gpu", form, " && exec ", program,
             " --query-compute-apps=gpu_uuid,pid,used_gpu_memory", form);
}

// Lines are "GPU-…, 97" for a GPU and "GPU-…, 4242, 1024" for a process with its MiB. [N/A] means an unknown value.
GpuUse parse_gpu_use(std::string_view text) {
  GpuUse use;
  size_t lines = 0;
  for (const std::string& line : split(text, '\n')) {
    if (++lines > kMostLines) break;
    std::vector<std::string> fields = split(line, ',');
    for (std::string& field : fields) field = trim(field);
    if (fields.size() == 2) {
      const auto percent = parse_int(fields[1]);
      if (percent && *percent >= 0 && *percent <= 100)
        use.percents[fields[0]] = static_cast<int>(*percent);
    } else if (fields.size() == 3) {
      const auto pid = parse_int(fields[1]);
      const auto mebibytes = parse_int(fields[2]);
      if (!pid || *pid <= 0 || *pid > INT32_MAX) continue;
      const bool is_known = mebibytes && *mebibytes >= 0 && *mebibytes <= INT32_MAX;
      use.processes.push_back({static_cast<pid_t>(*pid), fields[0],
                               is_known ? static_cast<uint64_t>(*mebibytes) * kMiB : 0});
    }
  }
  return use;
}

}  // namespace hvd::launcher
