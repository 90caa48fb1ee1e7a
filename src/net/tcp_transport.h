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
  // On every address of this host, IPv6 and IPv4, at a port of the range that is free.
  static Result<TcpListener> open(PortRange ports = {});
};

// A connection that has come in; empty when there is none, or none can be taken now.
GuardedFd accept_tcp(const TcpListener& listener);

// Begins to connect to an address of 4 or 16 bytes; writable when it is decided.
Result<GuardedFd> start_connect(ByteView address, uint16_t port);
// 0 when the connection stands, else an errno value.
int connect_outcome(int socket);
// For a connection between namespaces of one kernel. Where the system's congestion control paces
// what is sent (bbr), it spares the queues of a network that is not there.
void send_unpaced(int socket);

// "10.77.0.2:4711", "[fd00::1]:4711".
std::string endpoint_text(ByteView address, uint16_t port);

}  // namespace hvd::net
