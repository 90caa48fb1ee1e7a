// One program that an agent runs before ranks start, such as --remote-init: its output is
// collected, up to a bound. Lives on the agent's loop; it is the agent that reaps it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/agent/ranks/rank_process.h"

namespace hvd::launcher {

struct ErrandOutcome {
  std::string output;  // all of standard output
  std::string errors;  // the last of standard error
  int status = 0;      // as waitpid() has it
};

class Errand {
 public:
  using Done = std::function<void(ErrandOutcome)>;
  // `done` is called on the loop when the program has ended and said all: never from here. Then the
  // errand may be destroyed.
  static Result<std::unique_ptr<Errand>> start(PollLoop& loop, const RankCommand& command,
                                               Done done);
  ~Errand();
  Errand(const Errand&) = delete;
  // Some process has ended and is reaped.
  void on_reaped(pid_t pid, int status);

 private:
  Errand(PollLoop& loop, RankProcess process, Done done);
  void read(size_t stream);
  void settle();

  PollLoop& loop_;
  RankProcess process_;
  Done done_;
  ErrandOutcome outcome_;
  bool has_ended_ = false;
};

}  // namespace hvd::launcher
