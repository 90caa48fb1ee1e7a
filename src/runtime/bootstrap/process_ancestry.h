// Walks from this process to its ancestors by /proc. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::runtime {

// Maximum number of ancestors that a search visits.
constexpr int kMostLevels = 64;

// Returns the parent; nullopt without /proc, or if the process has ended.
std::optional<int64_t> parent_of(int64_t pid);

// Returns whether `pid` is the parent of this process, or an ancestor of the parent.
bool is_ancestor(int64_t pid);

}  // namespace hvd::runtime
