// Reads the TCP sockets of processes from /proc. One thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace hvd::launcher {

// Adds the inodes of the process's sockets, from its first `most` descriptors. Returns false if the descriptors are
// hidden, or if the process has more.
bool add_sockets(pid_t process, size_t most, std::set<uint64_t>& inodes);

// The local and the remote end of a connection, in the kernel's notation: "0100007F:1F90".
using ConnectionEnds = std::pair<std::string, std::string>;

// Reads the connections of processes. The kernel takes milliseconds to list the sockets of a network namespace, so this
// class reads the table of each namespace only once for all processes, up to 100,000 sockets.
class Connections {
 public:
  std::set<ConnectionEnds> of(pid_t process);

 private:
  std::map<std::string, std::map<uint64_t, ConnectionEnds>> tables_;  // by network and inode
};

inline std::set<ConnectionEnds> connections_of(pid_t process) { return Connections().of(process); }

// Returns the other user whose process listens on this port; nullopt if no process listens, or a process of this user.
// Before rank 0 listens on MASTER_PORT, the port is briefly free, and any user of the host can bind it.
std::optional<uid_t> other_user_at(uint16_t port);

}  // namespace hvd::launcher
