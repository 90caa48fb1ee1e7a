// Opens one TCP connection to a host, at the first of its addresses that answers. Tries the addresses
// in order, and starts the next one after a short delay when an address is silent. SshConnection calls it on the
// launch's loop.
#pragma once

#include <vector>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

// The caller bounds the time by cancelling. An error is one sentence that names address and port.
net::Task<Result<net::asio::ip::tcp::socket>> connect_any(
    std::vector<net::asio::ip::address> addresses, uint16_t port);

}  // namespace hvd::launcher
