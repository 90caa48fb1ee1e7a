#include "launcher/plan/slot_plan.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// A line for each host, below a heading; each begins on a new line.
std::string slot_table(const std::vector<Host>& hosts) {
  constexpr size_t kMaxShown = 32;
  constexpr std::string_view kHeading = "host";
  const size_t shown = std::min(hosts.size(), kMaxShown);
  size_t width = kHeading.size();
  for (size_t i = 0; i < shown; ++i) width = std::max(width, hosts[i].name.size());
  std::ostringstream table;
  const auto row = [&](std::string_view name, std::string_view slots) {
    table << "\n  " << std::left << std::setw(static_cast<int>(width)) << name << "  " << std::right
          << std::setw(5) << slots;
  };
  row(kHeading, "slots");
  for (size_t i = 0; i < shown; ++i) row(hosts[i].name, cat(hosts[i].slots));
  if (shown < hosts.size()) table << "\n  and " << hosts.size() - shown << " more hosts";
  return table.str();
}

}  // namespace

Result<SlotPlan> plan_slots(const std::vector<Host>& hosts, std::optional<int> num_proc) {
  const int total = std::accumulate(hosts.begin(), hosts.end(), 0,
                                    [](int sum, const Host& host) { return sum + host.slots; });
  const int size = num_proc.value_or(total);
  if (size > total) {
    return invalid_argument(cat(size, " ranks are more than the ", total,
                                total == 1 ? " slot there is" : " slots there are",
                                "; lower -np or give the hosts more slots:", slot_table(hosts)));
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
