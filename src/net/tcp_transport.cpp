#include "net/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::net {
namespace {

// Keep-alive probes begin after a quarter of a link's timeout, at the latest after this time.
constexpr double kSilenceSeconds = 15;
constexpr double kSecondsBetweenProbes = 5;
// TCP_RTO_MAX_MS of Linux 6.15, which many headers lack. Older kernels refuse the option, and retransmit less often.
constexpr int kLongestRetransmission = 44;
// The number of attempts to get a port that is free at all addresses.
constexpr int kTries = 16;

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
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

// Listens at an address. With port 0, the system chooses the port.
GuardedFd listen_on(ByteView address, uint16_t port) {
  GuardedFd socket = open_socket(address.size() == 4 ? AF_INET : AF_INET6);
  if (!socket) return {};
  if (address.size() == 16) {
    set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    // Bind also to a new address that the kernel still checks for duplicates.
    set(socket.get(), IPPROTO_IPV6, IPV6_FREEBIND, 1);
  }
  // A new job must get a port of a narrow range even if connections of the previous job are in
  // TIME_WAIT.
  if (port != 0) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage storage;
  const socklen_t size = fill_address(storage, address, port);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) return {};
  if (::listen(socket.get(), 1024) != 0) return {};
  return socket;
}

Result<uint16_t> port_of(const GuardedFd& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return system_error("cannot learn the port of a socket", errno);
  }
  return ntohs(storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

// Listens on all addresses that can be bound; fails if the port is in use at any of them.
Result<std::vector<TcpListener>> listen_at(const std::vector<Bytes>& addresses, uint16_t port) {
  std::vector<TcpListener> listeners;
  int error = 0;
  for (auto address = addresses.begin(); address != addresses.end(); ++address) {
    // Two interfaces may have one address.
    if (std::find(addresses.begin(), address, *address) != address) continue;
    TcpListener listener;
    listener.socket = listen_on(*address, port);
    if (!listener.socket) {
      error = errno;
      if (error == EADDRINUSE) break;
      continue;
    }
    HVD_ASSIGN_OR_RETURN(port, port_of(listener.socket));
    listener.port = port;
    listeners.push_back(std::move(listener));
  }
  if (error == EADDRINUSE || listeners.empty()) {
    return system_error("cannot listen for other hosts by TCP", error);
  }
  return listeners;
}

Status no_port_of(PortRange ports, const Status& last) {
  if (ports.is_any()) return last;
  return last.with_context(cat("no port of ", ports.first, "-", ports.last,
                               " is free for it, give a wider --port-range"));
}

Bytes address_of(const sockaddr_storage& storage) {
  const auto copy = [](const void* from, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(from);
    return Bytes(bytes, bytes + size);
  };
  if (storage.ss_family == AF_INET) {
    return copy(&reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return copy(address.s6_addr + 12, 4);
  return copy(&address, 16);
}

}  // namespace

Result<std::vector<TcpListener>> TcpListener::open_at(const std::vector<Bytes>& addresses,
                                                      PortRange ports) {
  if (addresses.empty()) return std::vector<TcpListener>();
  const int tries = ports.is_any() ? kTries : ports.size();
  Status last;
  for (int i = 0; i < tries; ++i) {
    const int port = ports.is_any() ? 0 : ports.first + i;
    auto listeners = listen_at(addresses, static_cast<uint16_t>(port));
    if (listeners.ok()) return listeners;
    last = listeners.error();
  }
  return no_port_of(ports, last);
}

Result<TcpListener> TcpListener::open(PortRange ports) {
  TcpListener listener;
  for (int port = ports.first; port <= ports.last && !listener.socket; ++port) {
    listener.socket = listen_on(Bytes(16), static_cast<uint16_t>(port));
    if (!listener.socket && errno != EADDRINUSE) {
      listener.socket = listen_on(Bytes(4), static_cast<uint16_t>(port));
    }
  }
  if (!listener.socket) {
    return no_port_of(ports, system_error("cannot listen for other hosts by TCP", errno));
  }
  HVD_ASSIGN_OR_RETURN(listener.port, port_of(listener.socket));
  return listener;
}

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Accepted accept_from(const TcpListener& listener) {
  const NoFork hold;
  Accepted accepted;
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  accepted.socket =
      GuardedFd(UniqueFd(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK)));
  if (accepted.socket) {
    accepted.address = address_of(peer);
    set(accepted.socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  } else if (is_shortage(errno)) {
    accepted.error = errno;
  }
  return accepted;
}

GuardedFd accept_tcp(const TcpListener& listener) { return accept_from(listener).socket; }

Result<GuardedFd> start_connect(ByteView address, uint16_t port) {
  sockaddr_storage storage;
  const socklen_t size = fill_address(storage, address, port);
  if (size == 0) return invalid_argument("an address has neither 4 nor 16 bytes");
  GuardedFd socket = open_socket(storage.ss_family);
  if (!socket) return system_error("cannot create a socket", errno);
  set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
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

void set_link_timeout(int socket, double seconds) {
  const auto whole = [](double time) { return static_cast<int>(std::clamp(time, 1.0, 2e9)); };
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, whole(seconds * 1000));
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, whole(std::min(seconds / 4, kSilenceSeconds)));
  const int between_probes = whole(std::min(seconds / 12, kSecondsBetweenProbes));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, between_probes);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Without this option, TCP doubles the time between two attempts: after a 30 s outage, it may send again only 20 s
  // later.
  set(socket, IPPROTO_TCP, kLongestRetransmission, 1000 * between_probes);
}

void send_unpaced(int socket) {
  char name[16] = "";
  socklen_t size = sizeof name;
  const bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0;
  if (!known || !std::string_view(name, ::strnlen(name, size)).starts_with("bbr")) return;
  // Prefer CUBIC: after spurious losses, for example of reordered segments, Reno's window grows by one
  // segment per round trip, and two busy directions delay each other's acknowledgements. But every
  // kernel has Reno, and every user may choose it.
  for (const std::string_view unpaced : {"cubic", "reno"}) {
    if (::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, unpaced.data(), unpaced.size()) == 0)
      return;
  }
}

std::string endpoint_text(ByteView address, uint16_t port) {
  const std::string text = address_text(address);
  if (address.size() == 4) return cat(text, ":", port);
  return cat("[", text.empty() ? "?" : text, "]:", port);
}

}  // namespace hvd::net
