// Lists the addresses of this host's network interfaces that a peer on another host may try.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::net {

struct InterfaceAddress {
  std::string interface;
  Bytes bytes;  // 4 (IPv4) or 16 (IPv6)
};

// Returns the addresses of every interface that is up, IPv4 first, without link-local addresses.
// Loopback addresses are included only with `with_loopback`.
Result<std::vector<InterfaceAddress>> interface_addresses(bool with_loopback = false);

}  // namespace hvd::net
