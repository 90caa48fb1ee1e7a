// Counts the kills of the kernel's out-of-memory killer in the memory cgroup of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hvd::launcher {

// Returns the number of kills; nullopt if the kernel has no such counter. Any thread.
std::optional<uint64_t> out_of_memory_kills();

// Returns the number after "oom_kill" in memory.events or memory.oom_control.
std::optional<uint64_t> parse_oom_kills(std::string_view text);

}  // namespace hvd::launcher
