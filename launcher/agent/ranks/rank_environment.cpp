#include "launcher/agent/ranks/rank_environment.h"

#include "base/text.h"
#include "launcher/agent/host/host_addresses.h"

namespace hvd::launcher {

Environment rank_environment(const RankWays& ways, const Environment& rank) {
  Environment more;
  const auto suggest = [&](const char* variable, const std::string& value) {
    if (!value.empty() && value_of(rank, variable).empty()) more.emplace_back(variable, value);
  };
  // Left to themselves they would take what the host's name resolves to, often a loopback address.
  suggest("GLOO_SOCKET_IFNAME", ways.order.interface);
  suggest("TP_SOCKET_IFNAME", ways.order.interface);
  more.emplace_back("HOROVOD_INTERFACE",
                    ways.order.interface);  // a job inside this one tells it by that
  if (!ways.interfaces.allows_all()) {
    suggest("NCCL_SOCKET_IFNAME", "=" + interface_names(ways.interfaces));
  }
  // Rank 0's program finds MASTER_PORT free: the ranks' own listeners take the ports behind it.
  const bool is_bounded = !ways.ports.is_any() && ways.meeting_port != 0;
  if (is_bounded && ways.meeting_port < ways.ports.last) {
    more.emplace_back("HOROVOD_PORT_RANGE", cat(ways.meeting_port + 1, "-", ways.ports.last));
  }
  more.emplace_back("HOROVOD_STORE", ways.store);
  return merged(std::move(more), ways.order.environment);
}

}  // namespace hvd::launcher
