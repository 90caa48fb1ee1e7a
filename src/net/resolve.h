// Resolves names to addresses by the system's resolver. The calls block: never call them on the
// thread of an event loop, and never link this file into a program that must not resolve names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::net {

// Returns at least one address to connect to. Numeric addresses and Unix sockets bypass the
// resolver.
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint);
// Returns the addresses to listen on. An empty host means every interface: IPv4, and IPv6 if the
// host has it.
Result<std::vector<SocketAddress>> resolve_to_listen(const Endpoint& endpoint);

// Kubernetes derives pod names from job names, and a part of a pod name may become too long for DNS.
// Returns a clause to append to an error about a name that does not resolve; empty if all its parts are short enough.
inline std::string advice_on_long_name(std::string_view name) {
  constexpr size_t kMaxLabel = 63;
  for (const std::string& label : split(name, '.')) {
    if (label.size() > kMaxLabel) {
      return cat("; '", printable(label), "' has ", label.size(), " characters, and DNS takes ",
                 kMaxLabel, ": give the job or the host a shorter name");
    }
  }
  return {};
}

}  // namespace hvd::net
