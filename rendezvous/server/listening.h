// Where a server is told to listen: as flags say it.
#pragma once

#include <string>
#include <vector>

#include "net/endpoint.h"
#include "rendezvous/server/server.h"

namespace hvd::rendezvous {

// "[HOST]:PORT", "[IPv6]:PORT", or a whole endpoint ("unix:/path"). Listens there; with a range
// ("29400-29409") at the first port of it that is free, in place of the one that `where` names.
// An error names the flag.
Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range);

}  // namespace hvd::rendezvous
