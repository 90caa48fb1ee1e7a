// Walks from this process to its ancestors by /proc. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::runtime {

// Limit of a walk.
constexpr int kMostLevels = 64;

// Nothing without /proc, and for a process that has ended.
std::optional<int64_t> parent_of(int64_t pid);

// Whether `pid` is the parent of this process, or an ancestor of it.
bool is_ancestor(int64_t pid);

}  // namespace hvd::runtime
