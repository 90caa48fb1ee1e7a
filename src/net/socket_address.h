// A sockaddr of any family, and its conversion from and to text without a resolver: static programs
// may use this file. resolve.h resolves names.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
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

// Returns the address of a Unix endpoint or of a numeric host; nullopt for a name or an empty host.
std::optional<SocketAddress> numeric_address(const Endpoint& endpoint);
// Converts an address of a Unix socket, IPv4 or IPv6.
Endpoint to_endpoint(const SocketAddress& address);

// Returns the 4 bytes of an IPv4 address or the 16 bytes of an IPv6 address; empty for another text.
Bytes address_bytes(std::string_view text);
// Formats an address; the inverse of address_bytes.
std::string address_text(ByteView bytes);
// Returns the address as text; empty for a Unix socket. For an IPv4-mapped IPv6 address (::ffff:10.0.0.1), returns the
// IPv4 address.
std::string host_text(const SocketAddress& address);

// Binds and listens; the socket is close-on-exec and non-blocking. The wildcard IPv6 address also
// accepts IPv4. Replaces the socket file of a dead listener.
Result<UniqueFd> listen_on(const SocketAddress& address, int backlog = 4096);
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);
// Returns the peer's address for messages, for example "tcp:10.0.0.1:4711"; empty for a Unix
// socket.
std::string peer_text(int fd);
// Sets the options of a connection: no Nagle delay, keep-alive that detects a dead peer within a
// minute, and no pacing within this machine. No effect on Unix sockets.
void tune_connection(int fd);

}  // namespace hvd::net
