// Chooses the master endpoint of programs of other stacks (MASTER_ADDR, MASTER_PORT): an address of
// rank 0's host, for each host one that it reaches. Lets the agents test the addresses. Lives on the
// loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/link/agent_link.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

struct MasterEndpoints {
  std::vector<StartOrder> orders;     // for each host of the plan
  std::vector<std::string> warnings;  // a sentence for each host that reaches none of the addresses
};

// The links have been prepared, in the order of the plan's hosts.
net::Task<MasterEndpoints> find_master_endpoints(
    net::asio::any_io_executor executor, const SlotPlan& plan,
    const std::vector<std::unique_ptr<AgentLink>>& links);

// Chooses by what the hosts have reached; pure. `reached` has an entry for each host of the plan.
MasterEndpoints choose_master_endpoints(const SlotPlan& plan, const MasterCandidates& candidates,
                                        const std::vector<Reached>& reached);

}  // namespace hvd::launcher
