#include "net/abstract_names.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <fstream>
#include <utility>

#include "base/text.h"
#include "net/packet_socket.h"

namespace hvd::net {

std::vector<std::string> listening_names(std::string_view prefix) {
  const std::string start = cat(" @", prefix);
  std::vector<std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const size_t at = line.find(start);
    // Only a listener has this flag: the listener's connections have the same name.
    if (at == std::string::npos || line.find(" 00010000 ") >= at) continue;
    names.push_back(line.substr(at + 2));
  }
  return names;
}

std::optional<Listener> connect_to_listener(std::string_view name, int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno == EAGAIN) return Listener{UniqueFd(), 0, static_cast<uid_t>(-1)};
    return {};
  }
  const auto peer = peer_credentials(socket.get());
  if (!peer) return {};
  ::fcntl(socket.get(), F_SETFL, 0);
  return Listener{std::move(socket), peer->pid, peer->uid};
}

}  // namespace hvd::net
