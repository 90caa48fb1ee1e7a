// The py-spy of this machine. Agents use py-spy for Python stacks of ranks that offer none, or copy it to their hosts.
// Reads the program at the first request, and offers it once to each host. JobInspector owns this object. Lives on the
// launch's loop.
#pragma once

#include <memory>
#include <set>

#include "launcher/link/agent_link.h"
#include "launcher/protocol/protocol.h"
#include "launcher/reach/own_package.h"
#include "net/asio.h"

namespace hvd::launcher {

class StackTool {
 public:
  explicit StackTool(const net::asio::any_io_executor& executor) : archive_(executor) {}
  // Offers py-spy to a host. `host`: the host's number in the plan.
  void offer_to(int host, AgentLink& link);

 private:
  void read();

  PackageArchive archive_;
  bool is_read_ = false;
  std::shared_ptr<const OwnPackage> package_;  // null if this machine has no py-spy
  StackToolOffer offer_;
  std::set<int> hosts_;  // hosts that received the offer
};

}  // namespace hvd::launcher
