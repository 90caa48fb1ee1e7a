// Accepts the connections of this host's processes to the agent. Lives on the agent's loop.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/endpoint.h"
#include "net/event_loop.h"

namespace hvd::launcher {

// Returns whether the process at the other end of a Unix socket belongs to the agent's user. Returns true for all
// other sockets.
bool is_of_this_user(int socket);

// Accepts all waiting connections, and closes those of other users. When the process has no free descriptors, the loop
// stops watching the listener: after closing a descriptor, the caller must change() the listener back to EPOLLIN.
void accept_all(net::EventLoop& loop, const UniqueFd& listener,
                const std::function<void(UniqueFd)>& take);

// Listens on 127.0.0.1, on the last free port of the range, because the first ports are for the ranks.
Result<UniqueFd> listen_on_loopback(const net::PortRange& ports);

}  // namespace hvd::launcher
