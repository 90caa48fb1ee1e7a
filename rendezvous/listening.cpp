#include "rendezvous/listening.h"

#include <utility>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

Result<std::pair<int64_t, int64_t>> parse_range(const std::string& text) {
  const size_t dash = text.find('-');
  const auto first = parse_int(std::string_view(text).substr(0, dash));
  const auto last = dash == std::string::npos
                        ? first : parse_int(std::string_view(text).substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *first > *last) {
    return invalid_argument(cat("--port-range: '", printable(text), "' is not FIRST-LAST, two ports "
                                "from 1 to 65535 in order"));
  }
  return std::pair(*first, *last);
}

}  // namespace

Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range) {
  const bool is_full = where.starts_with("unix:") || where.starts_with("tcp:");
  auto endpoint = net::parse_endpoint(is_full ? where : "tcp:" + where);
  if (!endpoint.ok()) return endpoint.status().with_context("--listen");
  if (port_range.empty() || endpoint->family != net::Endpoint::Family::kTcp) {
    return server.listen(*endpoint);
  }
  HVD_ASSIGN_OR_RETURN(const auto range, parse_range(port_range));
  Status last;
  for (int64_t port = range.first; port <= range.second; ++port) {
    endpoint->port = static_cast<uint16_t>(port);
    auto bound = server.listen(*endpoint);
    if (bound.ok()) return bound;
    last = bound.status();
  }
  return Status(last.code(), cat("no port from ", port_range, " is free (the last: ",
                                 last.message(), "); give another --port-range"));
}

}  // namespace hvd::rendezvous
