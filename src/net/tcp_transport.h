// Non-blocking TCP sockets for the data links, by address. A forked child closes these sockets at once. The
// caller must authenticate the peer. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "net/endpoint.h"

namespace hvd::net {

struct TcpListener {
  GuardedFd socket;
  uint16_t port = 0;
  // Listens on every address of this host, IPv6 and IPv4, at a free port of the range.
  static Result<TcpListener> open(PortRange ports = {});
  // Listens only on these addresses of 4 or 16 bytes, all at one free port of the range. Skips addresses
  // that cannot be bound, but fails if none can be bound. Without addresses, returns no listener.
  static Result<std::vector<TcpListener>> open_at(const std::vector<Bytes>& addresses,
                                                  PortRange ports = {});
};

// Returns whether accept(2) failed for lack of descriptors or memory while the connection still waits.
bool is_shortage(int error);

struct Accepted {
  GuardedFd socket;  // closed when no connection waits, and after an error
  Bytes address;     // address of the peer, 4 or 16 bytes
  int error = 0;     // an errno value for which is_shortage() is true, or 0
};
Accepted accept_from(const TcpListener& listener);
// Accepts a connection, for a caller that does not need the address or the error.
GuardedFd accept_tcp(const TcpListener& listener);

// Begins to connect to an address of 4 or 16 bytes. The socket becomes writable once the attempt
// has succeeded or failed.
Result<GuardedFd> start_connect(ByteView address, uint16_t port);
// Returns the errno value of a failed attempt; 0 if the attempt has succeeded or is in progress.
int connect_outcome(int socket);
// Ends a connection with ETIMEDOUT if its peer has not answered for this time. Shorter outages only
// delay the bytes. The kernel probes an idle connection: no thread wakes up.
void set_link_timeout(int socket, double seconds);
// Turns pacing off, for a connection between namespaces of one kernel. A congestion control like bbr
// paces data to protect a network's queues, but such a connection does not use a network.
void send_unpaced(int socket);

// Formats an endpoint: "10.77.0.2:4711", "[fd00::1]:4711".
std::string endpoint_text(ByteView address, uint16_t port);

}  // namespace hvd::net
