// Runs the steps of a task on several threads: a thread that starts a process by vfork sleeps until
// the process has executed its program.
#pragma once

#include <cstddef>
#include <functional>

namespace hvd::launcher {

// Calls `step` once with each of 0 to count - 1, and returns when all calls are done. The caller
// alone runs a small count. The other threads, at most three, never end, since the end of a thread also
// ends the processes that it started (PR_SET_PDEATHSIG). One thread at a time may call this.
void run_side_by_side(size_t count, std::function<void(size_t)> step);

}  // namespace hvd::launcher
