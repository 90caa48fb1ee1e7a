// Reserves MASTER_PORT, on which programs of other stacks find rank 0. The agent of rank 0's host finds a free port,
// listens on it while the agents of other hosts test their addresses, and releases the port when ranks start.
// Unknown clients cannot exhaust the agent's descriptors. Lives on the agent's loop.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

class MasterPortReservation {
 public:
  explicit MasterPortReservation(net::EventLoop& loop) : loop_(loop) {}
  ~MasterPortReservation() { release(); }

  // Finds a free port, and listens on it at these addresses only. Without a range, the port is outside of
  // the kernel's ephemeral range, so that it is still free when rank 0 binds it.
  Status open(const net::PortRange& ports, const std::vector<HostAddress>& addresses);
  const MasterCandidates& candidates() const { return candidates_; }
  // Stops listening, so that rank 0 can bind the port.
  void release();
  Deadline deadline() const { return pause_end_; }
  void on_deadline();

 private:
  Status listen(const net::PortRange& ports, const std::vector<Bytes>& addresses, bool only_own);
  bool claim(uint16_t port, bool only_own);
  void accept(const net::TcpListener& listener);
  void drop(int fd);
  void reset(const GuardedFd& client);

  net::EventLoop& loop_;
  MasterCandidates candidates_;
  UniqueFd claim_;
  std::vector<net::TcpListener> listeners_;
  std::vector<GuardedFd> clients_;  // oldest first
  // The end of a pause during which nothing is accepted; never: no pause.
  Deadline pause_end_ = Deadline::never();
};

}  // namespace hvd::launcher
