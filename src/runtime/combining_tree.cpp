#include "runtime/combining_tree.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

std::vector<int32_t> leaders_of(std::span<const int32_t> machines) {
  std::vector<int32_t> leaders;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == static_cast<int32_t>(leaders.size())) {
      leaders.push_back(static_cast<int32_t>(rank));
    }
  }
  return leaders;
}

// Children of a node of the binomial tree: node + 2^k for each 2^k below its lowest set bit.
std::vector<int32_t> binomial_children(int32_t node, int32_t count) {
  std::vector<int32_t> children;
  for (int64_t bit = 1; node + bit < count && (node & bit) == 0; bit <<= 1) {
    children.push_back(static_cast<int32_t>(node + bit));
  }
  return children;
}

void collect(int32_t machine, std::span<const int32_t> machines, int32_t count,
             std::vector<int32_t>* ranks) {
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == machine) ranks->push_back(static_cast<int32_t>(rank));
  }
  for (const int32_t child : binomial_children(machine, count)) {
    collect(child, machines, count, ranks);
  }
}

}  // namespace

TreePlace place_in_tree(int32_t rank, std::span<const int32_t> machines) {
  const std::vector<int32_t> leaders = leaders_of(machines);
  const auto machine_count = static_cast<int32_t>(leaders.size());
  const int32_t machine = machines[rank];
  TreePlace place;
  if (rank != leaders[machine]) {
    place.parent = leaders[machine];
    return place;
  }
  if (machine != 0) place.parent = leaders[machine & (machine - 1)];

  for (int32_t other = rank + 1; other < static_cast<int32_t>(machines.size()); ++other) {
    if (machines[other] != machine) continue;
    place.children.push_back(other);
    place.subtrees.push_back({other});
  }
  for (const int32_t child : binomial_children(machine, machine_count)) {
    std::vector<int32_t> ranks;
    collect(child, machines, machine_count, &ranks);
    std::sort(ranks.begin(), ranks.end());
    place.children.push_back(leaders[child]);
    place.subtrees.push_back(std::move(ranks));
  }
  return place;
}

}  // namespace hvd::runtime
