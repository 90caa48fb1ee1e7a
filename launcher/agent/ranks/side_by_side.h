// Runs the steps of a task on several threads: a thread that starts a process by vfork sleeps until
// the process has executed its program.
#pragma once

#include <cstddef>
#include <functional>

namespace hvd::launcher {

// Calls `step` with 0 to count - 1, each once, and returns when all are done; a few by the caller
// alone. The other threads never end: with the thread that started a process goes the process
// (PR_SET_PDEATHSIG). A caller has few tasks in its life.
void run_side_by_side(size_t count, std::function<void(size_t)> step);

}  // namespace hvd::launcher
