// Resolves names to addresses by the system's resolver. Blocks: never call it on a loop that serves
// others, and never link it into a program that must not resolve names.
#pragma once

#include <vector>

#include "net/socket_address.h"

namespace hvd::net {

// At least one address to connect to. Numbers and Unix sockets do not reach the resolver.
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint);
// To listen on: the same, but an empty host is every interface (IPv6 and IPv4 where there is
// IPv6).
Result<std::vector<SocketAddress>> resolve_to_listen(const Endpoint& endpoint);

}  // namespace hvd::net
