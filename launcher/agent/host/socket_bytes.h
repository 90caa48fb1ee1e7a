// Reads how much the TCP connections of this network namespace have moved, by sock_diag(7): what a process receives by
// recv(2) does not show in /proc/PID/io.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hvd::launcher {

// Bytes received and acknowledged, by the inode of the socket; nothing where the kernel does not tell.
std::optional<std::map<uint64_t, uint64_t>> tcp_bytes();

}  // namespace hvd::launcher
