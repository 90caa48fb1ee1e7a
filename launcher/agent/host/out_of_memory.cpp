#include "launcher/agent/host/out_of_memory.h"

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
std::optional<uint64_t> parse_oom_kills(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (!line.starts_with("oom_kill ")) continue;
    const auto count = parse_int(trim(line.substr(9)));
    if (count && *count >= 0) return static_cast<uint64_t>(*count);
  }
  return {};
}

std::string cgroup_path(std::string_view cgroups, bool is_v2) {
  while (!cgroups.empty()) {
    const std::string_view line = take_line(cgroups);
    const size_t path = line.find(":/");
    if (path == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(line.find(':'), path - line.find(':'));
    if (is_v2 ? controllers == ":" : controllers == ":memory") {
      return std::string(line.substr(path + 1));
    }
  }
  return "";
}

std::optional<uint64_t> out_of_memory_kills() {
  const std::string cgroups = read_proc_file("/proc/self/cgroup");
  const std::string v1 = "/sys/fs/cgroup/memory", file_v1 = "/memory.oom_control";
  const std::string v2 = "/sys/fs/cgroup", file_v2 = "/memory.events";
  // In a container, the cgroup mount may begin at the container's cgroup, so also try the path without it.
  for (const std::string& path : {cat(v1, cgroup_path(cgroups, false), file_v1), v1 + file_v1,
                                  cat(v2, cgroup_path(cgroups, true), file_v2), v2 + file_v2}) {
    if (const auto count = parse_oom_kills(read_proc_file(path))) return count;
  }
  return {};
}

}  // namespace hvd::launcher
