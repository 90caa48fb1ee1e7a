#include "runtime/negotiation/combining_tree.h"

#include <algorithm>
#include <map>

namespace hvd::runtime {
namespace {

// Maximum number of ranks of one machine that report to the same rank.
constexpr size_t kFanIn = 8;

// The members of each machine; machines are in the order of their lowest members.
struct Layout {
  Layout(std::span<const int32_t> members, std::span<const int32_t> machines) {
    std::map<int32_t, size_t> number;
    for (const int32_t rank : members) {
      const auto [found, fresh] = number.emplace(machines[static_cast<size_t>(rank)], ranks.size());
      if (fresh) ranks.emplace_back();
      ranks[found->second].push_back(rank);
    }
  }

  // A node is a rank's place: the machine, and the index on this machine.
  struct Node {
    size_t machine;
    size_t local;
  };
  int32_t rank_of(Node node) const { return ranks[node.machine][node.local]; }

  std::vector<Node> children_of(Node node) const {
    std::vector<Node> children;
    const size_t count = ranks[node.machine].size();
    for (size_t i = kFanIn * node.local + 1; i <= kFanIn * (node.local + 1) && i < count; ++i) {
      children.push_back({node.machine, i});
    }
    if (node.local != 0) return children;
    // The children in the binomial tree are machine + 2^k for each 2^k below the lowest set bit of `machine`.
    const size_t machine = node.machine;
    for (size_t bit = 1; machine + bit < ranks.size() && (machine & bit) == 0; bit <<= 1) {
      children.push_back({machine + bit, 0});
    }
    return children;
  }

  int32_t parent_of(Node node) const {
    if (node.local != 0) return ranks[node.machine][(node.local - 1) / kFanIn];
    if (node.machine == 0) return -1;
    return ranks[node.machine & (node.machine - 1)][0];
  }

  void collect(Node node, std::vector<int32_t>* below) const {
    below->push_back(rank_of(node));
    for (const Node child : children_of(node)) collect(child, below);
  }

  Node find(int32_t rank) const {
    for (size_t machine = 0; machine < ranks.size(); ++machine) {
      const auto& local = ranks[machine];
      const auto found = std::lower_bound(local.begin(), local.end(), rank);
      if (found != local.end() && *found == rank) {
        return {machine, static_cast<size_t>(found - local.begin())};
      }
    }
    return {0, 0};
  }

  std::vector<std::vector<int32_t>> ranks;
};

}  // namespace

TreePlace place_in_tree(int32_t rank, std::span<const int32_t> members,
                        std::span<const int32_t> machines) {
  const Layout layout(members, machines);
  const Layout::Node node = layout.find(rank);
  std::vector<std::vector<int32_t>> subtrees;
  for (const Layout::Node child : layout.children_of(node)) {
    layout.collect(child, &subtrees.emplace_back());
  }
  std::sort(subtrees.begin(), subtrees.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  TreePlace place;
  place.parent = layout.parent_of(node);
  for (auto& ranks : subtrees) {
    place.children.push_back(ranks.front());
    std::sort(ranks.begin(), ranks.end());
    place.subtrees.push_back(std::move(ranks));
  }
  return place;
}

std::vector<int32_t> parents_in_tree(std::span<const int32_t> members,
                                     std::span<const int32_t> machines) {
  const Layout layout(members, machines);
  std::vector<int32_t> parents(machines.size(), -1);
  for (size_t machine = 0; machine < layout.ranks.size(); ++machine) {
    for (size_t local = 0; local < layout.ranks[machine].size(); ++local) {
      const Layout::Node node{machine, local};
      parents[static_cast<size_t>(layout.rank_of(node))] = layout.parent_of(node);
    }
  }
  return parents;
}

}  // namespace hvd::runtime
