#include "launcher/agent/host/socket_bytes.h"

// <netinet/tcp.h> cannot be used, because its tcp_info lacks the byte counters.
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr timeval kAnswerTimeout{0, 200'000};

// Returns the number of bytes of a socket, from the attributes of its message.
uint64_t bytes_of(const rtattr* attribute, unsigned size) {
  for (; RTA_OK(attribute, size); attribute = RTA_NEXT(attribute, size)) {
    if (attribute->rta_type != INET_DIAG_INFO) continue;
    tcp_info info{};  // older kernels write fewer bytes: the rest stays zero
    std::memcpy(&info, RTA_DATA(attribute),
                std::min(sizeof info, static_cast<size_t>(RTA_PAYLOAD(attribute))));
    return info.tcpi_bytes_received + info.tcpi_bytes_acked;
  }
  return 0;
}

bool add_family(int socket, uint8_t family, std::map<uint64_t, uint64_t>& found) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  constexpr int kTimeWait = 6, kListen = 10;  // linux/tcp_states.h
  request.body.idiag_states = ~(1U << kTimeWait | 1U << kListen);
  if (::send(socket, &request, sizeof request, 0) != sizeof request) return false;
  alignas(nlmsghdr) std::array<char, 32 << 10> buffer;
  for (;;) {
    const ssize_t size = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (size <= 0) return false;
    auto left = static_cast<unsigned>(size);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == NLMSG_DONE) return true;
      if (message->nlmsg_type == NLMSG_ERROR ||
          message->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
        return false;
      const auto* about = static_cast<const inet_diag_msg*>(NLMSG_DATA(message));
      found[about->idiag_inode] =
          bytes_of(reinterpret_cast<const rtattr*>(about + 1),
                   message->nlmsg_len - static_cast<unsigned>(NLMSG_LENGTH(sizeof *about)));
    }
  }
}

}  // namespace

std::optional<std::map<uint64_t, uint64_t>> tcp_bytes() {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket) return {};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof kAnswerTimeout);
  std::map<uint64_t, uint64_t> found;
  if (!add_family(socket.get(), AF_INET, found)) return {};
  // Ignore errors: a kernel without IPv6 has no such connections.
  add_family(socket.get(), AF_INET6, found);
  return found;
}

}  // namespace hvd::launcher
