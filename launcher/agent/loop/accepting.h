// Accepts connections of ranks to their agent. At a Unix socket, only those of the agent's user.
#pragma once

#include <functional>

#include "base/unique_fd.h"
#include "net/event_loop.h"

namespace hvd::launcher {

// Accepts all waiting connections. When the process has no free descriptors, the loop stops to
// watch the listener: the caller must change() it back to EPOLLIN after it has closed one.
void accept_all(net::EventLoop& loop, const UniqueFd& listener,
                const std::function<void(UniqueFd)>& take);

}  // namespace hvd::launcher
