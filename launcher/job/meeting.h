// Where programs of other stacks meet: on which address of rank 0's host, as each host reaches it.
// Asks the agents, which try it. Lives on the loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/link/agent_link.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

struct Meeting {
  std::vector<StartOrder> orders;     // for each host of the plan
  std::vector<std::string> warnings;  // a sentence for each host that reaches none of the addresses
};

// The links have been prepared, in the order of the plan's hosts.
net::Task<Meeting> arrange_meeting(net::asio::any_io_executor executor, const SlotPlan& plan,
                                   const std::vector<std::unique_ptr<AgentLink>>& links);

// What hosts learned, put together; pure. `reached` has an entry for each host of the plan.
Meeting choose_meeting(const SlotPlan& plan, const MeetingOffer& offer,
                       const std::vector<Reached>& reached);

}  // namespace hvd::launcher
