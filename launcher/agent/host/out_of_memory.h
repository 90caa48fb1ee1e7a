// Counts the kills of the kernel's out-of-memory killer in the memory cgroup of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

// Nothing where the kernel does not tell. Any thread.
std::optional<uint64_t> out_of_memory_kills();

// The number behind "oom_kill" in memory.events or memory.oom_control.
std::optional<uint64_t> parse_oom_kills(std::string_view text);
// Where those files may be, by what /proc/self/cgroup says; the best first.
std::string cgroup_path(std::string_view cgroups, bool is_v2);

}  // namespace hvd::launcher
