#include "net/resolve.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

namespace hvd::net {

Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint) {
  if (const auto numeric = numeric_address(endpoint)) return std::vector{*numeric};
  if (endpoint.host.empty()) {
    return invalid_argument(cat(to_string(endpoint), " names no host to connect to"));
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  const std::string port = std::to_string(endpoint.port);
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (error == EAI_NONAME || error == EAI_ADDRFAMILY || error == EAI_NODATA) {
    // Try without AI_ADDRCONFIG: a host with only a loopback interface has no "configured" address family.
    hints.ai_flags = 0;
    error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  }
  if (error != 0) {
    return unavailable(
        cat("the name '", printable(endpoint.host), "' does not resolve: ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    if (entry->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) {
    return unavailable(cat("the name '", printable(endpoint.host), "' has no address"));
  }
  return addresses;
}

Result<std::vector<SocketAddress>> resolve_to_listen(const Endpoint& endpoint) {
  if (endpoint.family == Endpoint::Family::kUnix || !endpoint.host.empty()) {
    return resolve(endpoint);
  }
  Endpoint any = endpoint;
  // A kernel without IPv6 refuses to create the socket.
  const UniqueFd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  any.host = probe ? "::" : "0.0.0.0";
  return resolve(any);
}

}  // namespace hvd::net
