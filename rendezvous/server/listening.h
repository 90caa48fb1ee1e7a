// Starts to listen at the address from the flags --listen and --port-range. Stateless.
// horovod-rendezvous and horovodrun --listen call it, on the server's loop.
#pragma once

#include <string>
#include <vector>

#include "net/endpoint.h"
#include "rendezvous/server/server.h"

namespace hvd::rendezvous {

// `where` is "[HOST]:PORT", "[IPv6]:PORT" or an endpoint with its family ("unix:/path"). With a
// `port_range` ("29400-29409"), the first free port of the range replaces the port in `where`.
// An error names the flag.
Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range);

}  // namespace hvd::rendezvous
