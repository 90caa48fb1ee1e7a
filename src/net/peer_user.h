// Finds the user of the process at the other end of a connected stream socket: by SO_PEERCRED for a Unix socket, by the
// kernel's table of sockets for a TCP connection within this host. Stateless; any thread. Static programs like the
// agent may use this file.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace hvd::net {

struct PeerUser {
  bool is_here = false;      // the process runs on this host, in this network namespace
  std::optional<uid_t> uid;  // unset: the process runs elsewhere, or its user is unknown

  // Returns whether the process runs elsewhere, or here as this process's user or as root.
  bool is_own_or_elsewhere() const;
  // Returns the error message for any other process.
  std::string refusal() const;
};

// `asks_kernel`: whether to try netlink before /proc; false in tests.
PeerUser peer_user(int socket, bool asks_kernel = true);

}  // namespace hvd::net
