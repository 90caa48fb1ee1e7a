// Lists the addresses of this host that other hosts of the job may try. Reads the kernel's list and
// the environment, and resolves no names.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/protocol/program.h"
#include "net/interfaces.h"

namespace hvd::launcher {

struct HostAddress {
  std::string text;       // "10.77.0.1"
  std::string interface;  // "eth0"
  Bytes bytes;            // 4 (IPv4) or 16 (IPv6)
};

// Returns the selected addresses. The first is the address at which the launcher reaches this host, if it is known and
// selected. It comes from the link's socket, or from the ssh connection in `own`, the agent's environment. The last is
// a loopback address, even if it is not selected.
std::vector<HostAddress> host_addresses(int link, const Environment& own,
                                        const net::InterfaceChoice& choice);

// Returns the names of all selected interfaces except the loopback, separated by commas.
std::string interface_names(const net::InterfaceChoice& choice);

// Returns the interface with the local address of a connection; empty if there is none.
std::string interface_of_socket(int socket);

}  // namespace hvd::launcher
