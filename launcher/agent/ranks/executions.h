// Runs a user's commands next to a rank while the job runs (`horovodrun exec`), in the rank's environment without the
// variables by which MPI finds the other ranks. A command ends with the job, or when the `horovodrun exec` that
// requested it has disconnected. The agent owns this object. Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>

#include "base/clock.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class Executions {
 public:
  // `send` gets OutputChunk messages and, once for each order, ExecResult.
  using Send = std::function<void(const Message&)>;

  Executions(net::EventLoop& loop, Send send) : loop_(loop), send_(std::move(send)) {}
  ~Executions();

  // `like`: the rank's own command, which gives the new command all properties except the arguments, the input and
  // MPI's variables.
  void start(const Run& order, const RankCommand& like);
  void on_taken(const OutputCredit& taken);
  // Sends SIGTERM to the command's process group, and SIGKILL after the grace period.
  void stop(const StopRun& order, double grace_seconds);
  // Call for every reaped process that is not a rank.
  void on_reaped(pid_t pid, int status);
  Deadline deadline() const;
  void on_deadline();

 private:
  struct Execution {
    ExecResult answer;
    RankProcess process;
    pid_t group = -1;
    size_t unread = 0;  // bytes sent but not yet acknowledged
    bool has_ended = false;
    Deadline kill_at = Deadline::never();
  };

  void read(Execution& execution);
  bool read_some(Execution& execution, size_t stream);
  void settle(Execution& execution);
  Execution* find(uint32_t number);

  net::EventLoop& loop_;
  Send send_;
  std::list<Execution> running_;
};

}  // namespace hvd::launcher
