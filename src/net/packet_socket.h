// Abstract Unix sockets of type SOCK_SEQPACKET, which keep message boundaries and pass descriptors. No
// call waits: a caller that may wait polls the descriptor first. Any thread.
#pragma once

#include <sys/un.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::net {

// Limit of one message; the receiver refuses a longer one.
constexpr size_t kPacketLimit = 64 * 1024;

// `name` without the leading zero.
sockaddr_un abstract_address(std::string_view name, socklen_t& size);
// Close-on-exec and non-blocking.
Result<UniqueFd> listen_for_packets(std::string_view name);
// Blocking only while the listener has no room. kNotFound: nobody listens there.
Result<UniqueFd> connect_for_packets(std::string_view name);

// `whom` is for sentences. False: there is no room now.
Result<bool> send_packet(int fd, ByteView bytes, const std::vector<int>& fds,
                         std::string_view whom);

struct Packet {
  Bytes bytes;  // none: the peer has closed its end
  std::vector<UniqueFd> fds;
};
// Nothing when there is none yet.
Result<std::optional<Packet>> receive_packet(int fd, std::string_view whom);

}  // namespace hvd::net
