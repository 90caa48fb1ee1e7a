// A listening address as text: "unix:/path", "unix:@name" (abstract), "tcp:host:port",
// "tcp:[::1]:port". An empty host ("tcp::29400", "tcp:*:29400") means all interfaces. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::net {

struct Endpoint {
  enum class Family { kUnix, kTcp };

  Family family = Family::kTcp;
  std::string path;   // unix: a path, or "@name"
  std::string host;   // tcp: a name or an address without brackets; empty is all interfaces
  uint16_t port = 0;  // tcp: 0 lets the kernel choose when listening

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// to_string is the inverse of parse_endpoint.
Result<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

}  // namespace hvd::net
