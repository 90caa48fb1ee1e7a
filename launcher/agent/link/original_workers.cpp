#include "launcher/agent/link/original_workers.h"

#include <string>

#include "base/text.h"
#include "launcher/agent/host/host_addresses.h"

namespace hvd::launcher {

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
