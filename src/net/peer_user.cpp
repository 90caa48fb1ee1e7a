#include "net/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "base/text.h"
#include "base/unique_fd.h"
#include "net/packet_socket.h"

namespace hvd::net {
namespace {

// A TCP address in the form of the kernel's table: an IPv4-mapped IPv6 address becomes IPv4.
struct Ends {
  uint8_t family = 0;
  uint32_t address[4] = {};  // network byte order; IPv4 uses the first
  uint16_t port = 0;         // network byte order
};

std::optional<Ends> ends_of(const sockaddr_storage& storage) {
  Ends ends;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    ends.family = AF_INET;
    ends.address[0] = v4.sin_addr.s_addr;
    ends.port = v4.sin_port;
    return ends;
  }
  if (storage.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  ends.port = v6.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ends.family = AF_INET;
    std::memcpy(ends.address, v6.sin6_addr.s6_addr + 12, 4);
  } else {
    ends.family = AF_INET6;
    std::memcpy(ends.address, v6.sin6_addr.s6_addr, 16);
  }
  return ends;
}

// Tries to bind the address, which works only on its own host. Returns true if no socket can be made: the caller then
// checks the peer's user.
bool is_address_of_this_host(sockaddr_storage address, socklen_t size) {
  const UniqueFd probe(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return true;
  // The port is at the same place in both families.
  reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  return ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

// Returns false after the peer has reset the connection.
bool is_connected(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_state != TCP_CLOSE;
}

// A socket in the kernel's table. An entry without an inode is a closed socket, whose user is unknown.
struct SocketEntry {
  uid_t uid = 0;
  uint64_t inode = 0;
};

// Finds the socket with these ends by netlink (sock_diag). Returns nullopt if the socket does not exist, or if
// the kernel lacks this interface.
std::optional<SocketEntry> find_in_kernel(const Ends& own, const Ends& far) {
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = own.family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.body.id.idiag_sport = own.port;
  request.body.id.idiag_dport = far.port;
  std::memcpy(request.body.id.idiag_src, own.address, sizeof own.address);
  std::memcpy(request.body.id.idiag_dst, far.address, sizeof far.address);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel || ::send(kernel.get(), &request, sizeof request, 0) < 0) return {};
  struct {
    nlmsghdr head;
    inet_diag_msg body;
    char attributes[4096];
  } answer{};
  const ssize_t size = ::recv(kernel.get(), &answer, sizeof answer, MSG_DONTWAIT);
  const bool is_found = size >= static_cast<ssize_t>(sizeof answer.head + sizeof answer.body) &&
                        answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
                        answer.body.id.idiag_dport == far.port;  // the kernel may return a listener
  if (!is_found) return {};
  return SocketEntry{answer.body.idiag_uid, answer.body.idiag_inode};
}

// Finds the socket in /proc, which lists all sockets: this can take some 10 ms.
std::optional<SocketEntry> find_in_proc(const Ends& own, const Ends& far) {
  const bool is_v4 = own.family == AF_INET;
  const auto text_of = [&](const Ends& ends) {
    std::string text;
    char word[16];
    for (int i = 0; i < (is_v4 ? 1 : 4); ++i) {
      std::snprintf(word, sizeof word, "%08X", ends.address[i]);
      text += word;
    }
    std::snprintf(word, sizeof word, ":%04X", ntohs(ends.port));
    return text + word;
  };
  const std::string wanted = cat(" ", text_of(own), " ", text_of(far), " ");
  const std::unique_ptr<FILE, int (*)(FILE*)> table(
      std::fopen(is_v4 ? "/proc/net/tcp" : "/proc/net/tcp6", "re"), &std::fclose);
  char line[512];
  while (table && std::fgets(line, sizeof line, table.get()) != nullptr) {
    const char* at = std::strstr(line, wanted.c_str());
    if (at == nullptr) continue;
    // The fields are state, queues, timer, retransmissions, user, timeout, inode.
    unsigned uid = 0;
    unsigned long long inode = 0;
    const int read =
        std::sscanf(at + wanted.size(), "%*x %*x:%*x %*x:%*x %*x %u %*d %llu", &uid, &inode);
    if (read == 2) return SocketEntry{static_cast<uid_t>(uid), inode};
  }
  return {};
}

}  // namespace

bool PeerUser::is_own_or_elsewhere() const {
  return !is_here || (uid && (*uid == 0 || *uid == ::geteuid()));
}

std::string PeerUser::refusal() const {
  return cat("this connection comes from ", uid ? cat("user ", *uid) : "an unknown user",
             " of this host, where only user ", ::geteuid(), " and root are served");
}

PeerUser peer_user(int socket, bool asks_kernel) {
  sockaddr_storage near{}, far{};
  socklen_t near_size = sizeof near, far_size = sizeof far;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&near), &near_size) != 0) return {true, {}};
  if (near.ss_family == AF_UNIX) {
    const auto peer = peer_credentials(socket);
    return {true, peer ? std::optional(peer->uid) : std::nullopt};
  }
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&far), &far_size) != 0) return {true, {}};
  const auto own = ends_of(near), other = ends_of(far);
  if (!own || !other) return {true, {}};
  if (!is_address_of_this_host(far, far_size)) return {};
  std::optional<SocketEntry> entry;
  if (asks_kernel) entry = find_in_kernel(*other, *own);
  // If the kernel finds this end of a connection, it also finds the other end, unless that end is closed.
  const bool knows_sockets = asks_kernel && (entry || find_in_kernel(*own, *other));
  if (!knows_sockets && is_connected(socket)) entry = find_in_proc(*other, *own);
  return {true, entry && entry->inode != 0 ? std::optional(entry->uid) : std::nullopt};
}

}  // namespace hvd::net
