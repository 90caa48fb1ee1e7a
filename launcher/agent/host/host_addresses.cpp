#include "launcher/agent/host/host_addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/text.h"
#include "net/interfaces.h"

namespace hvd::launcher {

namespace {

std::string text_of(ByteView address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(address.size() == 4 ? AF_INET : AF_INET6, address.data(), text, sizeof text);
  return text;
}

// Returns the local address of a socket; empty when the socket is no network socket.
std::string own_end_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  if (storage.ss_family == AF_INET) {
    const in_addr& four = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    return text_of({reinterpret_cast<const std::byte*>(&four), 4});
  }
  if (storage.ss_family != AF_INET6) return {};
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  const ByteView bytes(reinterpret_cast<const std::byte*>(&six), 16);
  return text_of(IN6_IS_ADDR_V4MAPPED(&six) ? bytes.subspan(12) : bytes);
}

std::string known_address(int link, const Environment& own) {
  if (std::string text = own_end_of(link); !text.empty()) return text;
  // SSH_CONNECTION has the form "client port server port".
  const auto words = split(value_of(own, "SSH_CONNECTION"), ' ');
  return words.size() == 4 ? words[2] : std::string();
}

}  // namespace

std::vector<HostAddress> host_addresses(int link, const Environment& own,
                                        const net::InterfaceChoice& choice) {
  std::vector<HostAddress> found, loopback;
  const std::string known = known_address(link, own);
  const auto listed = net::interface_addresses(true);
  if (!listed.ok()) return found;
  for (const auto& [interface, bytes] : *listed) {
    const std::string text = text_of(bytes);
    const bool is_loopback = text == "::1" || text.starts_with("127.");
    if (is_loopback && loopback.empty()) loopback.push_back({text, interface, bytes});
    if (!is_loopback && choice.allows(interface, bytes)) found.push_back({text, interface, bytes});
  }
  std::stable_partition(found.begin(), found.end(),
                        [&](const HostAddress& address) { return address.text == known; });
  found.insert(found.end(), loopback.begin(), loopback.end());
  return found;
}

std::string interface_names(const net::InterfaceChoice& choice) {
  std::vector<std::string> names;
  const auto listed = net::interface_addresses();
  if (!listed.ok()) return {};
  for (const auto& [interface, bytes] : *listed) {
    const bool is_new = std::find(names.begin(), names.end(), interface) == names.end();
    if (is_new && choice.allows(interface, bytes)) names.push_back(interface);
  }
  return hvd::join(names, ",");
}

std::string interface_of_socket(int socket) {
  const std::string address = own_end_of(socket);
  const auto listed = net::interface_addresses(true);
  if (!listed.ok()) return {};
  for (const auto& [interface, bytes] : *listed) {
    if (text_of(bytes) == address) return interface;
  }
  return {};
}

}  // namespace hvd::launcher
