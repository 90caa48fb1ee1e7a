#include "launcher/agent/plain_workers.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "base/text.h"

namespace hvd::launcher {

namespace {

// As digits; empty when the socket is not of the network.
std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
  }
  return text;
}

// The address by which the launcher knows this host: of the socket that it is reached by, or of
// the ssh connection that carries the link ("client port server port").
std::string own_address(int link, const Environment& own) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(link, address, &size) == 0) {
    if (std::string text = text_of(address); !text.empty()) return text;
  }
  const auto words = split(value_of(own, "SSH_CONNECTION"), ' ');
  return words.size() == 4 ? words[2] : std::string();
}

// The one of this address, else the first that is up and no loopback; empty when there is none.
std::string interface_of(const std::string& address) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(head, &::freeifaddrs);
  std::string first;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = text_of(entry->ifa_addr);
    if (!text.empty() && text == address) return entry->ifa_name;
    const bool is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (first.empty() && !text.empty() && !is_loopback) first = entry->ifa_name;
  }
  return first;
}

}  // namespace

Environment plain_worker_environment(uint16_t port, int link, const Environment& rank,
                                     const Environment& own) {
  Environment told = {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                      {"HOROVOD_GLOO_RENDEZVOUS_PORT", cat(port)},
                      {"HOROVOD_CONTROLLER", "gloo"},
                      {"HOROVOD_CPU_OPERATIONS", "gloo"}};
  const bool is_alone = value_of(rank, "HOROVOD_LOCAL_SIZE") == value_of(rank, "HOROVOD_SIZE");
  const std::string interface = is_alone ? "lo" : interface_of(own_address(link, own));
  for (const char* variable : {"HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"}) {
    if (value_of(rank, variable).empty() && !interface.empty()) {
      told.emplace_back(variable, interface);
    }
  }
  return told;
}

}  // namespace hvd::launcher
