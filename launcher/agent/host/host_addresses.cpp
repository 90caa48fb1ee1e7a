#include "launcher/agent/host/host_addresses.h"

#include <algorithm>

#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::launcher {

namespace {

// Returns the local address of a socket; empty if it is not a network socket.
std::string own_end_of(int socket) {
  const auto own = net::local_address(socket);
  return own.ok() ? net::host_text(*own) : "";
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
    const std::string text = net::address_text(bytes);
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
    if (net::address_text(bytes) == address) return interface;
  }
  return {};
}

}  // namespace hvd::launcher
