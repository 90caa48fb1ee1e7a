// Where programs of other stacks meet (MASTER_ADDR, MASTER_PORT): a port of rank 0's host that its
// agent finds and holds while the agents of the other hosts try it, and leaves when ranks start.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/fork_guard.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/protocol/protocol.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

class MeetingPlace {
 public:
  explicit MeetingPlace(PollLoop& loop) : loop_(loop) {}
  ~MeetingPlace() { leave(); }

  // Without a range the port lies outside of those that the kernel gives to others, so that it is
  // still free when rank 0 comes to bind it.
  Status open(const net::PortRange& ports, const std::vector<HostAddress>& addresses);
  const MeetingOffer& offer() const { return offer_; }
  // Nothing listens there any more: the port is rank 0's.
  void leave();

 private:
  Status open_any();
  bool claim(uint16_t port);
  void accept();
  void part(int fd);

  PollLoop& loop_;
  MeetingOffer offer_;
  UniqueFd claim_;
  net::TcpListener listener_;
  std::map<int, GuardedFd> visitors_;
};

}  // namespace hvd::launcher
