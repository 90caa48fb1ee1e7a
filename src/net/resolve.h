// Resolves names to addresses by the system's resolver. The calls block: never call them on the
// thread of an event loop, and never link this file into a program that must not resolve names.
#pragma once

#include <vector>

#include "net/socket_address.h"

namespace hvd::net {

// Returns at least one address to connect to. Numeric addresses and Unix sockets bypass the
// resolver.
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint);
// Returns the addresses to listen on. An empty host means every interface: IPv4, and IPv6 if the
// host has it.
Result<std::vector<SocketAddress>> resolve_to_listen(const Endpoint& endpoint);

}  // namespace hvd::net
