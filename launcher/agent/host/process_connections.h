// Reads from /proc the TCP connections of one process. Stateless; any thread.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <utility>

namespace hvd::launcher {

// The own end and the other one of each connection, as the kernel writes them: "0100007F:1F90". Looks at the first
// 100,000 sockets of the process's network.
std::set<std::pair<std::string, std::string>> connections_of(pid_t process);

}  // namespace hvd::launcher
