#include "launcher/agent/host/out_of_memory.h"

#include "base/cores.h"
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

std::optional<uint64_t> out_of_memory_kills() {
  for (const std::string& folder : cgroup_folders(read_proc_file("/proc/self/cgroup"), "memory")) {
    for (const char* file : {"/memory.oom_control", "/memory.events"}) {
      if (const auto count = parse_oom_kills(read_proc_file(folder + file))) return count;
    }
  }
  return {};
}

}  // namespace hvd::launcher
