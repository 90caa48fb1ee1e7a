#include "launcher/hosts/host_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hvd::launcher {

HostTable::HostTable(const SlotPlan& plan) {
  for (const Host& host : plan.hosts) hosts_.emplace_back(static_cast<int>(hosts_.size()), host);
  for (const Slot& slot : plan.slots) {
    HostRun& host = this->host(slot.host);
    members_.push_back(host.ranks_.emplace_back(&ranks_.emplace_back(host, slot)));
  }
}

HostRun& HostTable::add(Host host, const std::vector<Slot>& slots) {
  const int number = static_cast<int>(hosts_.size());
  HostRun& added = hosts_.emplace_back(number, std::move(host));
  for (const Slot& slot : slots) {
    HVD_CHECK(slot.rank == size() && slot.host == added.number());
    added.ranks_.push_back(&ranks_.emplace_back(added, slot));
    ranks_.back().rank_ = -1;
  }
  if (added_) added_(added);
  return added;
}

void HostTable::set_members(int32_t generation, std::span<const int> numbers) {
  for (RankRun& rank : ranks_) rank.rank_ = -1;
  generation_ = generation;
  members_.clear();
  for (const int number : numbers) {
    rank(number).rank_ = static_cast<int>(members_.size());
    members_.push_back(&rank(number));
  }
}

std::vector<std::string> HostTable::host_names() const {
  std::vector<std::string> names;
  for (const RankRun& rank : ranks_) names.push_back(rank.host().name());
  return names;
}

bool HostTable::is_over() const {
  return std::ranges::all_of(hosts_, [](const HostRun& host) { return host.is_over(); });
}

int HostTable::living_ranks() const {
  return static_cast<int>(std::ranges::count_if(
      ranks_, [](const RankRun& rank) { return !rank.is_over() && !rank.host().is_over(); }));
}

}  // namespace hvd::launcher
