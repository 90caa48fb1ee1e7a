#include "launcher/slot_plan.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// "a:4, b:4", as -H takes it.
std::string slot_list(const std::vector<Host>& hosts) {
  constexpr size_t kMaxShown = 32;
  std::vector<std::string> shown;
  for (const Host& host : hosts) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(cat(host.name, ":", host.slots));
  }
  const std::string list = join(shown, ", ");
  return shown.size() == hosts.size() ? list
                                      : cat(list, " and ", hosts.size() - shown.size(), " more");
}

}  // namespace

Result<SlotPlan> plan_slots(const std::vector<Host>& hosts, std::optional<int> num_proc) {
  const int total = std::accumulate(hosts.begin(), hosts.end(), 0,
                                    [](int sum, const Host& host) { return sum + host.slots; });
  const int size = num_proc.value_or(total);
  if (size > total) {
    return invalid_argument(cat(size, " ranks are more than the ", total,
                                total == 1 ? " slot" : " slots", " there are (",
                                slot_list(hosts), "); lower -np or give the hosts more slots"));
  }
  SlotPlan plan;
  plan.slots.reserve(static_cast<size_t>(size));
  std::vector<int> hosts_with;  // by local rank
  for (const Host& host : hosts) {
    const int local_size = std::min(host.slots, size - plan.size());
    if (local_size == 0) break;
    for (int local_rank = 0; local_rank < local_size; ++local_rank) {
      if (local_rank == static_cast<int>(hosts_with.size())) hosts_with.push_back(0);
      plan.slots.push_back({.rank = plan.size(),
                            .host = static_cast<int>(plan.hosts.size()),
                            .local_rank = local_rank,
                            .local_size = local_size,
                            .cross_rank = hosts_with[static_cast<size_t>(local_rank)]++,
                            .cross_size = 0});
    }
    plan.hosts.push_back(host);
  }
  for (Slot& slot : plan.slots) {
    slot.cross_size = hosts_with[static_cast<size_t>(slot.local_rank)];
  }
  return plan;
}

}  // namespace hvd::launcher
