// Computes the variables that an agent adds to each rank's environment: addresses of the store and
// of the other ranks. Pure, except that it lists this host's interfaces.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/protocol/host_job.h"
#include "launcher/protocol/program.h"
#include "net/endpoint.h"
#include "net/interfaces.h"

namespace hvd::launcher {

struct RankNetwork {
  StartOrder order;          // the launcher's order
  std::string store;         // address of the store
  uint16_t master_port = 0;  // rank 0's port, if rank 0 is on this host
  net::PortRange ports;
  net::InterfaceChoice interfaces;
};

// `rank`: the rank's environment without these variables. Keeps the user's settings of other libraries.
Environment rank_environment(const RankNetwork& network, const Environment& rank);

// Returns the variables by which a worker of the original Horovod finds its job (--insecure-compat). `port`: the
// loopback port that accepts the requests of workers. `link`: the agent's link, whose interface leads to the launcher.
// `rank`: the environment of a rank without these variables; an interface in `rank` is kept. `own`: the environment of
// the agent.
Environment original_worker_environment(uint16_t port, int link, const Environment& rank,
                                        const Environment& own);

}  // namespace hvd::launcher
