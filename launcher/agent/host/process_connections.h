// Reads from /proc the TCP connections of processes. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace hvd::launcher {

// The own end and the other one of a connection, as the kernel writes them: "0100007F:1F90".
using ConnectionEnds = std::pair<std::string, std::string>;

// The kernel takes milliseconds to list the sockets of a network: this class reads the table of a network once for all
// processes, up to 100,000 sockets.
class Connections {
 public:
  std::set<ConnectionEnds> of(pid_t process);

 private:
  std::map<std::string, std::map<std::string, ConnectionEnds>> tables_;  // by network and inode
};

inline std::set<ConnectionEnds> connections_of(pid_t process) { return Connections().of(process); }

}  // namespace hvd::launcher
