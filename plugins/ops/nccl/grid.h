// The grid of hosts and places in a process set with the same number of members on each host. A
// hierarchical allreduce needs a grid: it reduces inside each host, then across hosts between members
// with the same place. NcclCommunicator computes the grid. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace hvd::ops::nccl {

struct Grid {
  int32_t host = 0, hosts = 1;    // index of this rank's host, by lowest member; number of hosts
  int32_t place = 0, places = 1;  // index of this rank on its host; number of members per host
};

// Returns nullopt when all members share one host, every member has its own host, or hosts have
// different numbers of members. `host_of`: the host of each rank of the job. `members`: ascending ranks.
inline std::optional<Grid> grid_of(const std::vector<int32_t>& members, int32_t own,
                                   const std::vector<int32_t>& host_of) {
  if (members.empty() || static_cast<size_t>(members.back()) >= host_of.size()) return std::nullopt;
  std::map<int32_t, std::vector<int32_t>> by_host;
  std::vector<int32_t> order;
  for (const int32_t member : members) {
    const int32_t host = host_of[static_cast<size_t>(member)];
    if (!by_host.contains(host)) order.push_back(host);
    by_host[host].push_back(member);
  }
  const int32_t own_host = host_of[static_cast<size_t>(own)];
  const std::vector<int32_t>& beside = by_host[own_host];
  const bool is_even = std::all_of(by_host.begin(), by_host.end(), [&](const auto& one) {
    return one.second.size() == beside.size();
  });
  if (!is_even || order.size() < 2 || beside.size() < 2) return std::nullopt;
  const auto index = [](const std::vector<int32_t>& of, int32_t what) {
    return static_cast<int32_t>(std::find(of.begin(), of.end(), what) - of.begin());
  };
  return Grid{index(order, own_host), static_cast<int32_t>(order.size()), index(beside, own),
              static_cast<int32_t>(beside.size())};
}

}  // namespace hvd::ops::nccl
