// Resolves names with the system's resolver, and connects to the first address that answers, without blocking the loop.
// Each lookup has its own thread: a silent name server delays only its own lookup, and neither a cancellation nor the
// end of the program waits for it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

// Returns at least one address, in the order of preference. A numeric address needs no lookup. An
// error is one sentence about the name.
net::Task<Result<std::vector<net::asio::ip::address>>> look_up(std::string name);

// Returns the IPv4 address as which other programs interpret a numeric name: 0.0.0.28 for "28". look_up() treats "28"
// as a name. Empty for other names and for addresses.
std::string address_of_number(const std::string& name);

// Returns true for localhost, loopback addresses, this machine's name, and names and addresses of
// its interfaces. A name that does not resolve is not local.
net::Task<bool> is_local_host(std::string name);

// The caller limits the time by cancelling. An error is one sentence that names address and port.
net::Task<Result<net::asio::ip::tcp::socket>> connect_any(
    std::vector<net::asio::ip::address> addresses, uint16_t port);

}  // namespace hvd::launcher
