// Reads the bytes transferred by the TCP connections of this network namespace, by sock_diag(7): /proc/PID/io does not
// count bytes that a process receives by recv(2).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hvd::launcher {

// Returns received plus acknowledged bytes, by the inode of the socket; nullopt if the kernel does not report the
// bytes.
std::optional<std::map<uint64_t, uint64_t>> tcp_bytes();

}  // namespace hvd::launcher
