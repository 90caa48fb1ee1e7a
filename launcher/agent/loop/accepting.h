// Accepts connections of ranks to their agent, only from processes of the agent's user.
#pragma once

#include <functional>

#include "base/unique_fd.h"
#include "launcher/agent/loop/poll_loop.h"

namespace hvd::launcher {

// All that wait. Out of descriptors, the listener is no longer watched: change() it back to
// EPOLLIN when one was closed.
void accept_all(PollLoop& loop, const UniqueFd& listener,
                const std::function<void(UniqueFd)>& take);

}  // namespace hvd::launcher
