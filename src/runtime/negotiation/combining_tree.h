// Computes a rank's place in the combining tree. The ranks of a machine report to its lowest rank, the
// leader. The leaders form a binomial tree, with the lowest rank at the root. On a machine with many
// ranks, some ranks each collect the reports of eight other ranks. The number of messages per rank and
// of rounds grows with the logarithm of the number of ranks. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hvd::runtime {

struct TreePlace {
  int32_t parent = -1;                         // -1 at the root
  std::vector<int32_t> children;               // ascending
  std::vector<std::vector<int32_t>> subtrees;  // ranks below each child, including the child
};

// Returns the place of `rank` among `members`, ascending ranks. `machines`: the machine of each rank
// of the job.
TreePlace place_in_tree(int32_t rank, std::span<const int32_t> members,
                        std::span<const int32_t> machines);

// Returns the rank to which each rank reports; -1 for the root and for ranks that are not members.
std::vector<int32_t> parents_in_tree(std::span<const int32_t> members,
                                     std::span<const int32_t> machines);

}  // namespace hvd::runtime
