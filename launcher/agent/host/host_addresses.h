// Lists the addresses of this host that the other hosts of a job may try. Reads the kernel's list and
// the environment, and resolves no names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/program/program.h"
#include "net/interface_choice.h"

namespace hvd::launcher {

struct HostAddress {
  std::string text;       // "10.77.0.1"
  std::string interface;  // "eth0"
};

// The one by which the launcher knows this host first: that of the link's socket, or of the ssh
// connection in `own`, the agent's environment. The loopback's is the last, whatever is chosen.
std::vector<HostAddress> host_addresses(int link, const Environment& own,
                                        const net::InterfaceChoice& choice);

// The names of all interfaces that are chosen, separated by commas; never the loopback's.
std::string interface_names(const net::InterfaceChoice& choice);

// The interface of the address that this end of a connection has; empty when there is none.
std::string interface_of_socket(int socket);

}  // namespace hvd::launcher
