#include "net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace hvd::net {
namespace {

Bytes copy_bytes(const void* from, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  return Bytes(bytes, bytes + size);
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

}  // namespace hvd::net
