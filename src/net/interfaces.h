// Lists the addresses of this host's network interfaces that a peer on another host may try.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::net {

struct InterfaceAddress {
  std::string interface;
  Bytes bytes;  // 4 (IPv4) or 16 (IPv6)
};

// Returns the addresses of every interface that is up, IPv4 first, without IPv6 link-local
// addresses. Loopback addresses are included only with `with_loopback`.
Result<std::vector<InterfaceAddress>> interface_addresses(bool with_loopback = false);

// Selects the addresses of a host that a job may use, from the list in --network-interfaces. Pure.
class InterfaceChoice {
 public:
  // Parses a list like "eth0,10.0.0.0/8,^docker0": names of interfaces and networks. A ^ excludes
  // the entry; a name may end in '*'. "" allows all. An error names the flag.
  static Result<InterfaceChoice> parse(std::string_view text);

  // Returns whether the job may use an address of 4 or 16 bytes: no entry with a ^ matches it, and, if
  // the list has entries without a ^, one of these matches.
  bool allows(std::string_view interface, ByteView address) const;
  bool allows_all() const { return rules_.empty(); }
  bool operator==(const InterfaceChoice&) const = default;

 private:
  struct Rule {
    bool is_excluding = false;
    std::string name;  // interface, or a prefix that ends in '*'; empty for a network
    Bytes network;
    int prefix_bits = 0;
    bool operator==(const Rule&) const = default;
  };
  static Result<Rule> parse_rule(std::string_view text);
  static bool matches(const Rule& rule, std::string_view interface, ByteView address);

  std::vector<Rule> rules_;
};

}  // namespace hvd::net
