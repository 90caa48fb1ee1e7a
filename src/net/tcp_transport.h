// Non-blocking TCP sockets for the data links, by address. A forked child closes them at once. The
// caller must authenticate the peer. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "net/port_range.h"

namespace hvd::net {

struct TcpListener {
  GuardedFd socket;
  uint16_t port = 0;
  // Listens on every address of this host, IPv6 and IPv4, at a free port of the range.
  static Result<TcpListener> open(PortRange ports = {});
};

// Accepts a connection; returns an empty descriptor when none waits or none can be accepted now.
GuardedFd accept_tcp(const TcpListener& listener);

// Begins to connect to an address of 4 or 16 bytes. The socket becomes writable once the attempt
// has succeeded or failed.
Result<GuardedFd> start_connect(ByteView address, uint16_t port);
// Returns 0 for an established connection, else an errno value.
int connect_outcome(int socket);
// Turns pacing off, for a connection between namespaces of one kernel. A congestion control such as
// bbr paces data to spare the queues of a network, and here there is no network.
void send_unpaced(int socket);

// Formats an endpoint: "10.77.0.2:4711", "[fd00::1]:4711".
std::string endpoint_text(ByteView address, uint16_t port);

}  // namespace hvd::net
