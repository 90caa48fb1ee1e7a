// Computes the variables that an agent adds to each rank's environment: addresses of the store and
// of the other ranks. Pure, except that it lists this host's interfaces.
#pragma once

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

}  // namespace hvd::launcher
