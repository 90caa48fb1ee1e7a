// Waits for the end of a process on a loop, without reaping it. Without pidfds (Linux before 5.3,
// and seccomp filters of that time), the ExitWatch of a child process checks at each SIGCHLD whether
// the child has ended. ChildProcess, ScriptRun and ScriptWatch each own one ExitWatch. Lives on the launcher's loop.
#pragma once

#include <sys/types.h>

#include <functional>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

class ExitWatch {
 public:
  explicit ExitWatch(net::asio::any_io_executor executor)
      : pidfd_(executor), child_signals_(std::move(executor)) {}

  // Calls `on_exit` once, from the loop, when the child has ended. `on_exit` must keep this object alive, and is
  // destroyed after its call or after close().
  Status begin(pid_t pid, std::function<void()> on_exit);
  void close();

 private:
  void look(pid_t pid, std::function<void()> on_exit);

  net::asio::posix::stream_descriptor pidfd_;
  net::asio::signal_set child_signals_;
};

}  // namespace hvd::launcher
