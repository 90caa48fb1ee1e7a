// Abstract names of Unix sockets, which every user of the host can bind. A name that ends in random
// digits cannot be bound beforehand: its clients find it by its beginning, and the kernel reports the
// process and user that listen there. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace hvd::net {

// Returns the names, without the leading zero, of all users' sockets in this network namespace that
// listen and whose name begins with `prefix`. Empty without /proc.
std::vector<std::string> listening_names(std::string_view prefix);

struct Listener {
  UniqueFd socket;  // connected; empty if the listener's queue of connections is full
  pid_t pid;        // id of the process that listens; 0 if the queue is full
  uid_t uid;        // not known if the queue is full
};
// Connects to a socket of `type` without waiting. Returns nothing when no such socket listens.
std::optional<Listener> connect_to_listener(std::string_view name, int type);

}  // namespace hvd::net
