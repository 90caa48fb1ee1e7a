// Abstract Unix sockets of type SOCK_SEQPACKET, which keep message boundaries and pass descriptors. Only
// connect_for_packets() may block: a caller that may wait polls the descriptor first. Any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::net {

// Every user of the host can bind an abstract name. If a name ends in random digits, no other process can bind it
// beforehand. Clients find the name by its prefix, and the kernel reports the listening process and its user.
//
// Returns the names, without the leading zero, of all users' listening sockets in this network
// namespace whose name begins with `prefix`. Empty without /proc.
std::vector<std::string> listening_names(std::string_view prefix);

struct Listener {
  UniqueFd socket;  // connected; closed if the listener's queue of connections is full
  pid_t pid;        // id of the listening process; 0 if the queue is full
  uid_t uid;        // undefined if the queue is full
};
// Connects to a socket of `type` without waiting. Returns nullopt if no such socket listens.
std::optional<Listener> connect_to_listener(std::string_view name, int type);

// Limit of one message; the receiver refuses a longer one.
constexpr size_t kPacketLimit = 64 * 1024;

// Returns the address of an abstract `name`, given without the leading zero.
sockaddr_un abstract_address(std::string_view name, socklen_t& size);
// Returns a listener that is close-on-exec and non-blocking.
Result<UniqueFd> listen_for_packets(std::string_view name);
// Connects; blocks only while the listener's backlog is full. kNotFound: no process listens there.
Result<UniqueFd> connect_for_packets(std::string_view name);

// Returns the credentials that the process at the other end of a Unix socket had at connect time; nullopt if unknown.
std::optional<ucred> peer_credentials(int fd);
// Returns whether the process at the other end of a Unix socket runs as this process's user or as root.
bool is_trusted_peer(int fd);

// Sends a packet. Returns false if the socket buffer is full. Error messages name the peer by `whom`.
Result<bool> send_packet(int fd, ByteView bytes, const std::vector<int>& fds,
                         std::string_view whom);

struct Packet {
  Bytes bytes;  // empty: the peer has closed its end
  std::vector<UniqueFd> fds;
};
// Returns nothing if no packet has arrived.
Result<std::optional<Packet>> receive_packet(int fd, std::string_view whom);

}  // namespace hvd::net
