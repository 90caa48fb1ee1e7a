#include "net/packet_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/text.h"

namespace hvd::net {
namespace {

constexpr int kMostFds = 253;  // the kernel's limit per message
constexpr int kBacklog = 1024;

Result<UniqueFd> make_socket(int flags) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket) return system_error("cannot create a Unix socket", errno);
  return socket;
}

}  // namespace

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

sockaddr_un abstract_address(std::string_view name, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Result<UniqueFd> listen_for_packets(std::string_view name) {
  HVD_ASSIGN_OR_RETURN(UniqueFd socket, make_socket(SOCK_NONBLOCK));
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return system_error("cannot listen on a Unix socket", errno);
  }
  return socket;
}

Result<UniqueFd> connect_for_packets(std::string_view name) {
  HVD_ASSIGN_OR_RETURN(UniqueFd socket, make_socket(0));
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  int failed;
  do {
    failed = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return socket;
  if (errno == ECONNREFUSED) return not_found(cat("nobody listens at @", printable(name)));
  return system_error(cat("cannot connect to @", printable(name)), errno);
}

std::optional<ucred> peer_credentials(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer;
}

bool is_trusted_peer(int fd) {
  const auto peer = peer_credentials(fd);
  return peer && (peer->uid == ::geteuid() || peer->uid == 0);
}

Result<bool> send_packet(int fd, ByteView bytes, const std::vector<int>& fds,
                         std::string_view whom) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(sizeof(int) * fds.size()));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EAGAIN) return false;
    if (errno != EINTR) return system_error(cat("cannot write to ", whom), errno);
  }
}

Result<std::optional<Packet>> receive_packet(int fd, std::string_view whom) {
  Packet packet{Bytes(kPacketLimit), {}};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * kMostFds));
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return std::optional<Packet>();
  if (size < 0) return system_error(cat("cannot read from ", whom), errno);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof received);
      packet.fds.emplace_back(received);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return invalid_argument(cat("a message from ", whom,
                                " is too long, or this process may open "
                                "no more descriptors (ulimit -n)"));
  }
  packet.bytes.resize(static_cast<size_t>(size));
  return std::optional<Packet>(std::move(packet));
}

}  // namespace hvd::net
