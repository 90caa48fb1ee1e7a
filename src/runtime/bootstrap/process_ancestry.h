// Walks from this process to its ancestors by /proc. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::runtime {

// The most ancestors that a search visits.
constexpr int kMostLevels = 64;

// Empty without /proc, and for a process that has ended.
std::optional<int64_t> parent_of(int64_t pid);

// Returns whether `pid` is the parent of this process, or an ancestor of the parent.
bool is_ancestor(int64_t pid);

}  // namespace hvd::runtime
