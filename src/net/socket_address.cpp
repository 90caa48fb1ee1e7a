#include "net/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/text.h"
#include "net/tcp_transport.h"

namespace hvd::net {
namespace {

constexpr size_t kPathOffset = offsetof(sockaddr_un, sun_path);

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto* raw = reinterpret_cast<sockaddr_un*>(&address.storage);
  raw->sun_family = AF_UNIX;
  const size_t size = std::min(path.size(), sizeof raw->sun_path - 1);
  std::memcpy(raw->sun_path, path.data(), size);
  const bool abstract = path.starts_with('@');
  if (abstract) raw->sun_path[0] = '\0';
  // The size delimits an abstract name; a path also has a NUL.
  address.size = static_cast<socklen_t>(kPathOffset + size + (abstract ? 0 : 1));
  return address;
}

// Removes a socket file whose listener has ended. Never removes any other file.
bool remove_dead_listener(const SocketAddress& address) {
  const auto* raw = reinterpret_cast<const sockaddr_un*>(&address.storage);
  struct stat info {};
  if (raw->sun_path[0] == '\0' || ::lstat(raw->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return false;
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), address.get(), address.size) == 0 || errno != ECONNREFUSED) {
    return false;
  }
  return ::unlink(raw->sun_path) == 0;
}

// Returns the bytes of an IPv4 or IPv6 address; empty for a Unix socket.
ByteView bytes_of(const SocketAddress& address) {
  const void* bytes = nullptr;
  size_t size = 0;
  if (address.family() == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
    size = sizeof(in_addr);
  } else if (address.family() == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
    size = sizeof(in6_addr);
  }
  return {static_cast<const std::byte*>(bytes), size};
}

void set_option(int fd, int level, int name, int value) {
  // Best effort: a connection also works without the option.
  [[maybe_unused]] const int set = ::setsockopt(fd, level, name, &value, sizeof value);
}

bool is_of_this_machine(const Endpoint& local, const Endpoint& peer) {
  constexpr std::string_view kLoopback = "127.";
  return local.host == peer.host ||
         (local.host.starts_with(kLoopback) && peer.host.starts_with(kLoopback));
}

}  // namespace

std::optional<SocketAddress> numeric_address(const Endpoint& endpoint) {
  if (endpoint.family == Endpoint::Family::kUnix) return unix_address(endpoint.path);
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    address.size = sizeof *v4;
    return address;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, endpoint.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    address.size = sizeof *v6;
    return address;
  }
  return {};
}

Endpoint to_endpoint(const SocketAddress& address) {
  Endpoint endpoint;
  endpoint.host = address_text(bytes_of(address));
  if (address.family() == AF_UNIX) {
    endpoint.family = Endpoint::Family::kUnix;
    const auto* raw = reinterpret_cast<const sockaddr_un*>(&address.storage);
    if (address.size > kPathOffset) {
      endpoint.path.assign(raw->sun_path, address.size - kPathOffset);
      if (endpoint.path.front() == '\0') {
        endpoint.path.front() = '@';
      } else {
        endpoint.path.resize(std::strlen(endpoint.path.c_str()));
      }
    }
  } else if (address.family() == AF_INET) {
    endpoint.port = ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
  } else if (address.family() == AF_INET6) {
    endpoint.port = ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  }
  return endpoint;
}

Bytes address_bytes(std::string_view text) {
  const std::string digits(text);
  for (const int family : {AF_INET, AF_INET6}) {
    Bytes bytes(family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr));
    if (::inet_pton(family, digits.c_str(), bytes.data()) == 1) return bytes;
  }
  return {};
}

std::string address_text(ByteView bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == sizeof(in_addr)) ::inet_ntop(AF_INET, bytes.data(), text, sizeof text);
  if (bytes.size() == sizeof(in6_addr)) ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

std::string host_text(const SocketAddress& address) {
  const ByteView bytes = bytes_of(address);
  const bool is_mapped =
      address.family() == AF_INET6 &&
      IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
  return address_text(is_mapped ? bytes.last(sizeof(in_addr)) : bytes);
}

Result<UniqueFd> listen_on(const SocketAddress& address, int backlog) {
  const auto failed = [&](int error) {
    return system_error(cat("cannot listen on ", to_string(to_endpoint(address))), error);
  };
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failed(errno);
  if (address.family() != AF_UNIX) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  int bound = ::bind(fd.get(), address.get(), address.size);
  if (bound != 0 && errno == EADDRINUSE && address.family() == AF_UNIX &&
      remove_dead_listener(address)) {
    bound = ::bind(fd.get(), address.get(), address.size);
  }
  if (bound != 0 || ::listen(fd.get(), backlog) != 0) return failed(errno);
  return fd;
}

Result<SocketAddress> local_address(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return system_error("cannot read a socket's own address", errno);
  }
  return address;
}

Result<SocketAddress> peer_address(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return system_error("cannot read a socket's peer address", errno);
  }
  return address;
}

std::string peer_text(int fd) {
  const auto peer = peer_address(fd);
  if (!peer.ok() || peer->family() == AF_UNIX) return {};
  Endpoint from = to_endpoint(*peer);
  from.host = host_text(*peer);
  return to_string(from);
}

void tune_connection(int fd) {
  const auto address = local_address(fd);
  if (!address.ok() || (address->family() != AF_INET && address->family() != AF_INET6)) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const auto peer = peer_address(fd);
  if (peer.ok() && is_of_this_machine(to_endpoint(*address), to_endpoint(*peer))) send_unpaced(fd);
}

}  // namespace hvd::net
