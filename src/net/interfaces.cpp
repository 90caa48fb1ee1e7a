#include "net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::net {
namespace {

Bytes copy_bytes(const void* from, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  return Bytes(bytes, bytes + size);
}

bool is_interface_name(std::string_view name) {
  return !name.empty() && name.size() < IF_NAMESIZE && name.find('/') == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses(bool with_loopback) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return system_error("cannot list network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(head, &::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 && !with_loopback) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const in_addr& address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
      const bool loopback = (ntohl(address.s_addr) >> 24) == 127;
      if (loopback && !with_loopback) continue;
      found.push_back({entry->ifa_name, copy_bytes(&address, 4)});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      if (IN6_IS_ADDR_LOOPBACK(&address) && !with_loopback) continue;
      found.push_back({entry->ifa_name, copy_bytes(&address, 16)});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.bytes.size() < b.bytes.size(); });
  return found;
}

Result<InterfaceChoice::Rule> InterfaceChoice::parse_rule(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(cat("--network-interfaces: '", printable(text), "' ", why,
                                "; name interfaces (eth0, ib*), networks (10.0.0.0/8), or what is "
                                "not to be used (^docker0)"));
  };
  Rule rule;
  std::string_view rest = text;
  rule.is_excluding = rest.starts_with('^');
  if (rule.is_excluding) rest.remove_prefix(1);
  const size_t slash = rest.find('/');
  rule.network = address_bytes(rest.substr(0, slash));
  if (rule.network.empty()) {
    if (slash != std::string_view::npos) return refuse("is no network");
    const size_t star = rest.find('*');
    if (!is_interface_name(rest) || (star != std::string_view::npos && star + 1 != rest.size())) {
      return refuse("is no name of an interface");
    }
    rule.name = rest;
    return rule;
  }
  const int most = static_cast<int>(rule.network.size()) * 8;
  const auto bits = slash == std::string_view::npos ? most : parse_int(rest.substr(slash + 1));
  if (!bits || *bits < 0 || *bits > most) {
    return refuse(cat("has no prefix length from 0 to ", most));
  }
  rule.prefix_bits = static_cast<int>(*bits);
  return rule;
}

Result<InterfaceChoice> InterfaceChoice::parse(std::string_view text) {
  InterfaceChoice choice;
  if (trim(text).empty()) return choice;
  for (const std::string& part : split(text, ',')) {
    HVD_ASSIGN_OR_RETURN(Rule rule, parse_rule(trim(part)));
    choice.rules_.push_back(std::move(rule));
  }
  return choice;
}

bool InterfaceChoice::matches(const Rule& rule, std::string_view interface, ByteView address) {
  if (!rule.name.empty()) {
    if (!rule.name.ends_with('*')) return interface == rule.name;
    return interface.starts_with(std::string_view(rule.name).substr(0, rule.name.size() - 1));
  }
  if (address.size() != rule.network.size()) return false;
  const auto bit_of = [](ByteView bytes, int bit) {
    return (static_cast<unsigned>(bytes[static_cast<size_t>(bit / 8)]) >> (7 - bit % 8)) & 1u;
  };
  for (int bit = 0; bit < rule.prefix_bits; ++bit) {
    if (bit_of(address, bit) != bit_of(rule.network, bit)) return false;
  }
  return true;
}

bool InterfaceChoice::allows(std::string_view interface, ByteView address) const {
  bool is_named = false;
  bool is_any_named = false;
  for (const Rule& rule : rules_) {
    const bool is_match = matches(rule, interface, address);
    if (rule.is_excluding && is_match) return false;
    if (rule.is_excluding) continue;
    is_any_named = true;
    is_named |= is_match;
  }
  return is_named || !is_any_named;
}

}  // namespace hvd::net
