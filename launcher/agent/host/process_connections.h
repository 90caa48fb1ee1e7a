// Reads the TCP connections of processes from /proc. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace hvd::launcher {

// The local and the remote end of a connection, in the kernel's notation: "0100007F:1F90".
using ConnectionEnds = std::pair<std::string, std::string>;

// Reads the connections of processes. The kernel takes milliseconds to list the sockets of a network namespace, so this
// class reads the table of each namespace only once for all processes, up to 100,000 sockets.
class Connections {
 public:
  std::set<ConnectionEnds> of(pid_t process);

 private:
  std::map<std::string, std::map<std::string, ConnectionEnds>> tables_;  // by network and inode
};

inline std::set<ConnectionEnds> connections_of(pid_t process) { return Connections().of(process); }

}  // namespace hvd::launcher
