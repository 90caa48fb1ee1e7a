#include "launcher/reach/pmix_order.h"

#include "base/text.h"
#include "launcher/pmix/conversation.h"

namespace hvd::launcher {

bool take_pmix(std::vector<Versions>& versions) {
  bool all = true;
  for (Versions& of_host : versions) {
    all &= std::erase_if(of_host, [](const auto& each) { return each.first == kPmix; }) > 0;
  }
  return all;
}

void order_pmix(const SlotPlan& plan, std::vector<StartOrder>& orders) {
  std::vector<std::string> names;
  for (const Host& host : plan.hosts) names.push_back(host.name);
  std::vector<std::vector<int>> ranks(plan.hosts.size());
  for (const Slot& slot : plan.slots) ranks[static_cast<size_t>(slot.host)].push_back(slot.rank);
  for (StartOrder& order : orders) {
    order.environment.emplace_back("HOROVOD_PMIX_HOSTS", join(names, ","));
    order.environment.emplace_back("HOROVOD_PMIX_RANKS", to_ranges(ranks));
  }
}

}  // namespace hvd::launcher
