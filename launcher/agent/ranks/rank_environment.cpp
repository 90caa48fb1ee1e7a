#include "launcher/agent/ranks/rank_environment.h"

#include "base/text.h"
#include "launcher/agent/host/host_addresses.h"

namespace hvd::launcher {

Environment rank_environment(const RankNetwork& network, const Environment& rank) {
  Environment more;
  const auto suggest = [&](const char* variable, const std::string& value) {
    if (!value.empty() && value_of(rank, variable).empty()) more.emplace_back(variable, value);
  };
  // Scripts for the original Horovod read these two variables.
  suggest("HOROVOD_CONTROLLER", "gloo");
  suggest("HOROVOD_CPU_OPERATIONS", "gloo");
  // Without these variables, Gloo and TensorPipe use the address of the host name, which is often a loopback
  // address.
  suggest("GLOO_SOCKET_IFNAME", network.order.interface);
  suggest("TP_SOCKET_IFNAME", network.order.interface);
  more.emplace_back("HOROVOD_INTERFACE",
                    network.order.interface);  // for a job inside this job
  if (!network.interfaces.allows_all()) {
    suggest("NCCL_SOCKET_IFNAME", "=" + interface_names(network.interfaces));
  }
  // The ranks' own listeners use the ports after MASTER_PORT, which therefore remains free for rank 0's
  // program.
  const bool is_bounded = !network.ports.is_any() && network.master_port != 0;
  if (is_bounded && network.master_port < network.ports.last) {
    more.emplace_back("HOROVOD_PORT_RANGE", cat(network.master_port + 1, "-", network.ports.last));
  }
  more.emplace_back("HOROVOD_STORE", network.store);
  return overlay(std::move(more), network.order.environment);
}

Environment original_worker_environment(uint16_t port, int link, const Environment& rank,
                                        const Environment& own) {
  Environment environment = {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                             {"HOROVOD_GLOO_RENDEZVOUS_PORT", cat(port)},
                             {"HOROVOD_CONTROLLER", "gloo"},
                             {"HOROVOD_CPU_OPERATIONS", "gloo"}};
  const bool is_alone = value_of(rank, "HOROVOD_LOCAL_SIZE") == value_of(rank, "HOROVOD_SIZE");
  const auto addresses = host_addresses(link, own, {});
  const std::string interface =
      addresses.empty() ? "" : (is_alone ? addresses.back() : addresses.front()).interface;
  for (const char* variable : {"HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"}) {
    if (value_of(rank, variable).empty() && !interface.empty()) {
      environment.emplace_back(variable, interface);
    }
  }
  return environment;
}

}  // namespace hvd::launcher
