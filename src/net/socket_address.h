// A sockaddr of any family, and its conversion from and to text without a resolver: static programs
// may use this file. resolve.h resolves names.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/endpoint.h"

namespace hvd::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The address of a Unix endpoint or of a numeric host; nothing when the host is a name or empty.
std::optional<SocketAddress> numeric_address(const Endpoint& endpoint);
// Unix sockets, IPv4 and IPv6.
Endpoint to_endpoint(const SocketAddress& address);

// Binds and listens; close-on-exec and non-blocking. The wildcard IPv6 address takes IPv4 too.
// The Unix path of a listener that is dead is taken over.
Result<UniqueFd> listen_on(const SocketAddress& address, int backlog = 4096);
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);
// Sets the options of all our connections: no Nagle, keep-alive that detects a dead peer within a
// minute, and no pacing on connections within this machine. No effect on Unix sockets.
void tune_connection(int fd);

}  // namespace hvd::net
