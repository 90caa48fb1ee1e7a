#include "launcher/agent/link/accepting.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "net/packet_socket.h"

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

}  // namespace hvd::launcher
