#include "net/port_range.h"

#include "base/text.h"

namespace hvd::net {

Result<PortRange> parse_port_range(std::string_view text) {
  if (text.empty()) return PortRange{};
  const size_t dash = text.find('-');
  const auto first = parse_int(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_int(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *first > *last) {
    return invalid_argument(cat("--port-range: '", printable(text),
                                "' is not FIRST-LAST, two ports "
                                "from 1 to 65535 in order"));
  }
  return PortRange{static_cast<uint16_t>(*first), static_cast<uint16_t>(*last)};
}

}  // namespace hvd::net
