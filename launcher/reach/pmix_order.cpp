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

void order_pmix(const HostTable& hosts, std::vector<StartOrder>& orders) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks;
  for (const HostRun& host : hosts.hosts()) {
    names.push_back(host.name());
    std::vector<int>& own = ranks.emplace_back();
    for (const RankRun* rank : host.ranks()) own.push_back(rank->number());
  }
  for (StartOrder& order : orders) {
    order.environment.emplace_back("HOROVOD_PMIX_HOSTS", join(names, ","));
    order.environment.emplace_back("HOROVOD_PMIX_RANKS", to_ranges(ranks));
  }
}

}  // namespace hvd::launcher
