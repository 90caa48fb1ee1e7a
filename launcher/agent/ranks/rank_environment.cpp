#include "launcher/agent/ranks/rank_environment.h"

#include "base/text.h"
#include "launcher/agent/host/host_addresses.h"

namespace hvd::launcher {

Environment rank_environment(const RankNetwork& network, const Environment& rank) {
  Environment more;
  const auto suggest = [&](const char* variable, const std::string& value) {
    if (!value.empty() && value_of(rank, variable).empty()) more.emplace_back(variable, value);
  };
  // Left to themselves they would take what the host's name resolves to, often a loopback address.
  suggest("GLOO_SOCKET_IFNAME", network.order.interface);
  suggest("TP_SOCKET_IFNAME", network.order.interface);
  more.emplace_back("HOROVOD_INTERFACE",
                    network.order.interface);  // a job inside this one tells it by that
  if (!network.interfaces.allows_all()) {
    suggest("NCCL_SOCKET_IFNAME", "=" + interface_names(network.interfaces));
  }
  // Rank 0's program finds MASTER_PORT free: the ranks' own listeners take the ports behind it.
  const bool is_bounded = !network.ports.is_any() && network.master_port != 0;
  if (is_bounded && network.master_port < network.ports.last) {
    more.emplace_back("HOROVOD_PORT_RANGE", cat(network.master_port + 1, "-", network.ports.last));
  }
  more.emplace_back("HOROVOD_STORE", network.store);
  return merged(std::move(more), network.order.environment);
}

}  // namespace hvd::launcher
