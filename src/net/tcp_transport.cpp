#include "net/tcp_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace hvd::net {
namespace {

// Bytes that stay unacknowledged for this time mean that the peer is gone.
constexpr int kUserTimeoutMs = 20000;
// Keep-alive probes begin after this time of silence. The kernel sends them, and no thread wakes
// up.
constexpr int kSilenceSeconds = 15;
constexpr int kSecondsBetweenProbes = 5;

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

void tune(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilenceSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetweenProbes);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

socklen_t fill_address(sockaddr_storage& storage, ByteView address, uint16_t port) {
  std::memset(&storage, 0, sizeof storage);
  if (address.size() == 4) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, address.data(), 4);
    return sizeof ipv4;
  }
  if (address.size() == 16) {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.data(), 16);
    return sizeof ipv6;
  }
  return 0;
}

GuardedFd open_socket(int family) {
  const NoFork hold;
  return GuardedFd(UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

// With port 0 the system chooses the port.
GuardedFd listen_on(ByteView any, uint16_t port) {
  GuardedFd socket = open_socket(any.size() == 4 ? AF_INET : AF_INET6);
  if (!socket) return {};
  if (any.size() == 16) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // A new job must get a port of a narrow range although connections of the last job are in
  // TIME_WAIT.
  if (port != 0) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage storage;
  const socklen_t size = fill_address(storage, any, port);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) return {};
  if (::listen(socket.get(), 1024) != 0) return {};
  return socket;
}

}  // namespace

Result<TcpListener> TcpListener::open(PortRange ports) {
  TcpListener listener;
  for (int port = ports.first; port <= ports.last && !listener.socket; ++port) {
    listener.socket = listen_on(Bytes(16), static_cast<uint16_t>(port));
    if (!listener.socket && errno != EADDRINUSE) {
      listener.socket = listen_on(Bytes(4), static_cast<uint16_t>(port));
    }
  }
  if (!listener.socket && !ports.is_any()) {
    const Status status = system_error("cannot listen for other hosts by TCP", errno);
    return status.with_context(cat("no port of ", ports.first, "-", ports.last,
                                   " is free for it, give a wider --port-range"));
  }
  if (!listener.socket) return system_error("cannot listen for other hosts by TCP", errno);
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return system_error("cannot learn the port of a socket", errno);
  }
  listener.port = ntohs(storage.ss_family == AF_INET
                            ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                            : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return listener;
}

GuardedFd accept_tcp(const TcpListener& listener) {
  const NoFork hold;
  GuardedFd socket(
      UniqueFd(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  if (socket) tune(socket.get());
  return socket;
}

Result<GuardedFd> start_connect(ByteView address, uint16_t port) {
  sockaddr_storage storage;
  const socklen_t size = fill_address(storage, address, port);
  if (size == 0) return invalid_argument("an address has neither 4 nor 16 bytes");
  GuardedFd socket = open_socket(storage.ss_family);
  if (!socket) return system_error("cannot create a socket", errno);
  tune(socket.get());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    return system_error(endpoint_text(address, port), errno);
  }
  return socket;
}

int connect_outcome(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void send_unpaced(int socket) {
  // Every kernel has this congestion control, and lets every user choose it.
  constexpr std::string_view kUnpaced = "reno";
  char name[16] = "";
  socklen_t size = sizeof name;
  const bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0;
  if (!known || !std::string_view(name, ::strnlen(name, size)).starts_with("bbr")) return;
  ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
}

std::string endpoint_text(ByteView address, uint16_t port) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.size() == 4) {
    ::inet_ntop(AF_INET, address.data(), text, sizeof text);
    return cat(text, ":", port);
  }
  if (address.size() == 16) ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return cat("[", text, "]:", port);
}

}  // namespace hvd::net
