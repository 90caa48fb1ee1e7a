// Who reports to whom: the ranks of a machine to its lowest rank, those leaders to each other as
// a binomial tree, with rank 0 at the root. So a rank talks to at most (ranks of its machine) +
// log2(machines) others. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hvd::runtime {

struct TreePlace {
  int32_t parent = -1;                          // -1 at the root
  std::vector<int32_t> children;                // ascending
  std::vector<std::vector<int32_t>> subtrees;   // ranks below each child, itself included
};

// machines[rank]: the machine of each rank, numbered from 0 in the order of their lowest ranks.
TreePlace place_in_tree(int32_t rank, std::span<const int32_t> machines);

}  // namespace hvd::runtime
