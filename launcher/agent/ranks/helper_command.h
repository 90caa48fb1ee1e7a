// A helper command that the agent runs, such as --remote-init or nvidia-smi. Collects its output, up to a limit. The
// agent reaps the process. Lives on the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/agent/ranks/rank_process.h"
#include "net/event_loop.h"

namespace hvd::launcher {

struct HelperCommandOutcome {
  std::string output;  // standard output, up to about 4 MiB
  std::string errors;  // end of standard error
  int status = 0;      // as returned by waitpid()
};

class HelperCommand {
 public:
  using Done = std::function<void(HelperCommandOutcome)>;
  // Starts the command. When the command has ended and its output has been read, calls `done` on the
  // loop, but never from start(). `done` may destroy the object.
  static Result<std::unique_ptr<HelperCommand>> start(net::EventLoop& loop,
                                                      const RankCommand& command, Done done);
  ~HelperCommand();
  HelperCommand(const HelperCommand&) = delete;
  // Call for every reaped child process of the agent.
  void on_reaped(pid_t pid, int status);
  // Sends SIGKILL to the command's process group, unless the command was already reaped. `done` is called later.
  void kill();

 private:
  HelperCommand(net::EventLoop& loop, RankProcess process, Done done);
  void read(size_t stream);
  void settle();

  net::EventLoop& loop_;
  RankProcess process_;
  Done done_;
  HelperCommandOutcome outcome_;
  bool has_ended_ = false;
};

}  // namespace hvd::launcher
