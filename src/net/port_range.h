// The ports at which a job may listen, from --port-range. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace hvd::net {

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
