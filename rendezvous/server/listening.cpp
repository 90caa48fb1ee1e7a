#include "rendezvous/server/listening.h"

#include "base/text.h"
#include "net/port_range.h"

namespace hvd::rendezvous {

Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range) {
  const bool is_full = where.starts_with("unix:") || where.starts_with("tcp:");
  auto endpoint = net::parse_endpoint(is_full ? where : "tcp:" + where);
  if (!endpoint.ok()) return endpoint.status().with_context("--listen");
  if (port_range.empty() || endpoint->family != net::Endpoint::Family::kTcp) {
    return server.listen(*endpoint);
  }
  HVD_ASSIGN_OR_RETURN(const net::PortRange range, net::parse_port_range(port_range));
  Status last;
  for (int port = range.first; port <= range.last; ++port) {
    endpoint->port = static_cast<uint16_t>(port);
    auto bound = server.listen(*endpoint);
    if (bound.ok()) return bound;
    last = bound.status();
  }
  return Status(last.code(), cat("no port from ", port_range, " is free (the last: ",
                                 last.message(), "); give another --port-range"));
}

}  // namespace hvd::rendezvous
