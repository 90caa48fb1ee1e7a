// Chooses the master endpoint for programs of other stacks (MASTER_ADDR, MASTER_PORT): for each host, a reachable
// address of rank 0's host. The agents test the addresses.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "net/asio.h"

namespace hvd::launcher {

struct MasterEndpoints {
  std::vector<StartOrder> orders;     // for each host of the plan
  std::vector<std::string> warnings;  // hosts that reach no address, or loopback is down
};

// All `hosts` must be held.
net::Task<MasterEndpoints> find_master_endpoints(net::asio::any_io_executor executor,
                                                 const HostTable& hosts);

// Chooses from the addresses that each host has reached. `reached`: one entry for each host. Pure.
MasterEndpoints choose_master_endpoints(const HostTable& hosts, const MasterCandidates& candidates,
                                        const std::vector<Reached>& reached);

}  // namespace hvd::launcher
