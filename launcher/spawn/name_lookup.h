// Names to addresses by the system's resolver, without blocking the loop: each lookup has a thread
// of its own, so that a name server that does not answer delays one name and no other, and
// cancelling a lookup (or leaving the program) waits for nothing.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

// In the order of preference, at least one. An address is returned as it is. An error is one
// sentence about the name.
net::Task<Result<std::vector<net::asio::ip::address>>> look_up(std::string name);

// True for localhost, loopback addresses, this machine's name, and names and addresses that lead
// to one of its interfaces. A name that does not resolve is not local.
net::Task<bool> is_local_host(std::string name);

}  // namespace hvd::launcher
