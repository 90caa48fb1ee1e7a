// Abstract names of Unix sockets, which every user of the host can bind. If a name ends in random
// digits, no other process can bind it beforehand. Clients find the name by its prefix, and the kernel
// reports the listening process and its user. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace hvd::net {

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

}  // namespace hvd::net
