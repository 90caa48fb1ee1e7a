#include "launcher/plan/slot_plan.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

int most_slots(const Host& host) { return std::max(host.slots, host.max_slots); }

int total_of(const std::vector<Host>& hosts, int (*slots)(const Host&)) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [&](int sum, const Host& host) { return sum + slots(host); });
}

// Returns the number of ranks of each host: fills the hosts' slots in order until `size` ranks have a place. If `size`
// is above the sum of slots, gives each host the same number of ranks, within its limit.
std::vector<int> divide(const std::vector<Host>& hosts, int size) {
  const bool is_above = size > total_of(hosts, [](const Host& host) { return host.slots; });
  int level = 0;
  const auto at_level = [&](int each) {
    int sum = 0;
    for (const Host& host : hosts) sum += std::min(most_slots(host), each);
    return sum;
  };
  while (is_above && at_level(level) < size) ++level;
  std::vector<int> ranks;
  for (const Host& host : hosts) {
    const int most = is_above ? std::min(most_slots(host), level) : host.slots;
    ranks.push_back(std::min(most, size));
    size -= ranks.back();
  }
  return ranks;
}

std::string advice(const std::vector<Host>& hosts, int size) {
  if (!hosts.empty() && !hosts.front().offered.empty())
    return "lower -np, request more (sbatch --ntasks-per-node=N), or write --slots-per-host N";
  // Hosts without a given number of slots have one slot each.
  const bool has_numbers =
      std::ranges::any_of(hosts, [](const Host& host) { return most_slots(host) != 1; });
  if (has_numbers || hosts.empty()) return "lower -np or give the hosts more slots";
  const int count = static_cast<int>(hosts.size());
  return cat("lower -np or give the hosts more slots, as by --slots-per-host ",
             (size + count - 1) / count);
}

// Returns a heading and a line for each host; each line begins with a newline.
std::string slot_table(const std::vector<Host>& hosts) {
  constexpr size_t kMaxShown = 32;
  constexpr std::string_view kHeading = "host";
  const size_t shown = std::min(hosts.size(), kMaxShown);
  size_t width = kHeading.size();
  for (size_t i = 0; i < shown; ++i) width = std::max(width, hosts[i].name.size());
  std::ostringstream table;
  const auto row = [&](std::string_view name, std::string_view slots, std::string_view offered) {
    table << "\n  " << std::left << std::setw(static_cast<int>(width)) << name << "  " << std::right
          << std::setw(5) << slots;
    if (!offered.empty()) table << "  " << offered;
  };
  row(kHeading, "slots", "");
  for (size_t i = 0; i < shown; ++i) {
    row(hosts[i].name, cat(most_slots(hosts[i])),
        hosts[i].offered.empty() ? "" : cat("(Slurm: ", hosts[i].offered, ")"));
  }
  if (shown < hosts.size()) table << "\n  and " << hosts.size() - shown << " more hosts";
  return table.str();
}

}  // namespace

Result<SlotPlan> plan_slots(const std::vector<Host>& hosts, std::optional<int> num_proc) {
  const int size = num_proc.value_or(total_of(hosts, [](const Host& host) { return host.slots; }));
  if (const int most = total_of(hosts, most_slots); size > most) {
    return invalid_argument(cat(size, " ranks are more than the ", most,
                                most == 1 ? " slot there is" : " slots there are", "; ",
                                advice(hosts, size), ":", slot_table(hosts)));
  }
  SlotPlan plan;
  // By local rank: the number of hosts that have this local rank.
  std::vector<int> hosts_with;
  const std::vector<int> ranks = divide(hosts, size);
  for (size_t host = 0; host < hosts.size() && ranks[host] > 0; ++host) {
    const int local_size = ranks[host];
    for (int local_rank = 0; local_rank < local_size; ++local_rank) {
      if (local_rank == static_cast<int>(hosts_with.size())) hosts_with.push_back(0);
      plan.slots.push_back({.rank = plan.size(),
                            .host = static_cast<int>(plan.hosts.size()),
                            .local_rank = local_rank,
                            .local_size = local_size,
                            .cross_rank = hosts_with[static_cast<size_t>(local_rank)]++,
                            .cross_size = 0});
    }
    plan.hosts.push_back(hosts[host]);
  }
  for (Slot& slot : plan.slots) {
    slot.cross_size = hosts_with[static_cast<size_t>(slot.local_rank)];
  }
  return plan;
}

Result<std::vector<Host>> take_spares(std::vector<Host>& hosts, size_t count) {
  if (count >= hosts.size() && count > 0) {
    return invalid_argument(cat("--spares ", count, " leaves none of the ", hosts.size(),
                                hosts.size() == 1 ? " host" : " hosts",
                                " to start on; name more with -H"));
  }
  const auto first = hosts.end() - static_cast<ptrdiff_t>(count);
  std::vector<Host> spares(first, hosts.end());
  hosts.erase(first, hosts.end());
  return spares;
}

namespace {

std::vector<Host>::const_iterator spare_for(const SlotPlan& plan, int host,
                                            const std::vector<Host>& spares) {
  const auto needed = std::ranges::count(plan.slots, host, &Slot::host);
  return std::ranges::find_if(spares, [&](const Host& each) { return each.slots >= needed; });
}

}  // namespace

bool can_replace(const SlotPlan& plan, int host, const std::vector<Host>& spares) {
  return spare_for(plan, host, spares) != spares.end();
}

Replacement replace_hosts(SlotPlan& plan, const std::vector<int>& failed,
                          std::vector<Host>& spares) {
  Replacement done;
  for (const int index : failed) {
    Host& host = plan.hosts[static_cast<size_t>(index)];
    const auto needed = std::count_if(plan.slots.begin(), plan.slots.end(),
                                      [&](const Slot& slot) { return slot.host == index; });
    const auto spare = spare_for(plan, index, spares);
    if (spare == spares.end()) {
      done.unreplaced[index] =
          cat("no spare host is left with ", needed, needed == 1 ? " slot" : " slots",
              " for those of host ", host.name);
      continue;
    }
    done.sentences.push_back(
        cat("host ", spare->name, ", a spare, takes the place of host ", host.name));
    host = *spare;
    spares.erase(spare);
  }
  return done;
}

}  // namespace hvd::launcher
