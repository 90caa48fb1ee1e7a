// Commands of the user's that run beside a rank, in its environment, while the job runs
// (`horovodrun exec`). They end with the job. Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "launcher/agent/errand.h"
#include "launcher/agent/protocol.h"

namespace hvd::launcher {

class Executions {
 public:
  using Ended = std::function<void(const Ran&)>;

  Executions(PollLoop& loop, Ended ended) : loop_(loop), ended_(std::move(ended)) {}

  // `like`: the rank's own command, of which all but the words is taken. Each is answered once.
  void start(const Run& order, const RankCommand& like);
  // A process that is no rank has ended.
  void on_reaped(pid_t pid, int status);

 private:
  struct Execution {
    Ran answer;
    std::unique_ptr<Errand> errand;
    std::optional<int> status;
    bool is_said = false;  // all of its output is there
  };

  void settle(Execution& execution);

  PollLoop& loop_;
  Ended ended_;
  std::list<Execution> running_;
};

}  // namespace hvd::launcher
