// One TCP connection to whichever address of a host answers first. Addresses are tried in their
// order; one that is silent delays the next by a moment only.
#pragma once

#include <vector>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

// The caller bounds the time by cancelling. An error is one sentence that names address and port.
net::Task<Result<net::asio::ip::tcp::socket>> connect_any(
    std::vector<net::asio::ip::address> addresses, uint16_t port);

}  // namespace hvd::launcher
