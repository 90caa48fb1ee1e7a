// A socket address as text: "unix:/path", "unix:@name" (abstract), "tcp:host:port", "tcp:[::1]:port". An empty host
// ("tcp::29400", "tcp:*:29400") means all interfaces of a listener. Pure.
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

Result<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

// The ports at which a job may listen, from --port-range. Pure.
struct PortRange {
  uint16_t first = 0;  // 0: the system chooses any port
  uint16_t last = 0;

  bool is_any() const { return first == 0; }
  int size() const { return is_any() ? 0 : last - first + 1; }
  bool operator==(const PortRange&) const = default;
};

// Parses "29400-29409" or "29400"; "" means any port. An error names the flag.
Result<PortRange> parse_port_range(std::string_view text);

}  // namespace hvd::net
