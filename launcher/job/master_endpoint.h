// Chooses the master endpoint for programs of other stacks (MASTER_ADDR, MASTER_PORT): for each host an
// address of rank 0's host that it can reach. The agents test the addresses. HostStartup calls it on the
// launch's loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/link/agent_link.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

struct MasterEndpoints {
  std::vector<StartOrder> orders;     // for each host of the plan
  std::vector<std::string> warnings;  // one for each host that reaches none of the addresses
};

// `links`: prepared, in the order of the plan's hosts.
net::Task<MasterEndpoints> find_master_endpoints(
    net::asio::any_io_executor executor, const SlotPlan& plan,
    const std::vector<std::unique_ptr<AgentLink>>& links);

// Chooses by the addresses that each host has reached. `reached`: one entry for each host. Pure.
MasterEndpoints choose_master_endpoints(const SlotPlan& plan, const MasterCandidates& candidates,
                                        const std::vector<Reached>& reached);

}  // namespace hvd::launcher
