#include "launcher/plan/spares.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {

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

// Returns the first spare with enough slots for the host's ranks.
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
