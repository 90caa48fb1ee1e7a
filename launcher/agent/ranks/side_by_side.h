// Runs the steps of a task on several threads, because a thread that starts a process by vfork sleeps until the new
// process has executed its program. Class Ranks owns this object.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace hvd::launcher {

class SideBySide {
 public:
  SideBySide();
  // Calls `step` with each number from 0 to count - 1. Blocks until all calls are done. If the count is small, the
  // caller's thread makes all calls. The other threads, at most three, serve all calls of run() and never end, because
  // the end of a thread would also end the processes that it started (PR_SET_PDEATHSIG).
  void run(size_t count, std::function<void(size_t)> step);

 private:
  class Threads;
  const std::shared_ptr<Threads> threads_;
};

}  // namespace hvd::launcher
