#include "launcher/agent/link/accepting.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "net/packet_socket.h"
#include "net/socket_address.h"

namespace hvd::launcher {

bool is_of_this_user(int socket) {
  int family = 0;
  socklen_t size = sizeof family;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) return false;
  if (family != AF_UNIX) return true;
  const auto peer = net::peer_credentials(socket);
  return peer && peer->uid == ::geteuid();
}

void accept_all(net::EventLoop& loop, const UniqueFd& listener,
                const std::function<void(UniqueFd)>& take) {
  for (;;) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) loop.change(listener.get(), 0);
      return;
    }
    if (is_of_this_user(socket.get())) take(std::move(socket));
  }
}

Result<UniqueFd> listen_on_loopback(const net::PortRange& ports) {
  net::Endpoint here{net::Endpoint::Family::kTcp, {}, "127.0.0.1", 0};
  Result<UniqueFd> socket = unavailable("no port");
  for (int port = ports.last; port >= ports.first && !socket.ok(); --port) {
    here.port = static_cast<uint16_t>(port);
    socket = net::listen_on(*net::numeric_address(here));
  }
  return socket;
}

}  // namespace hvd::launcher
