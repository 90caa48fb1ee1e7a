// One program that an agent runs before ranks start, such as --remote-init: its output is
// collected, up to a bound. Lives on the agent's loop; it is the agent that reaps it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/agent/poll_loop.h"
#include "launcher/agent/rank_process.h"

namespace hvd::launcher {

struct ErrandOutcome {
  std::string output;  // all of standard output
  std::string errors;  // the last of standard error
};

class Errand {
 public:
  using Done = std::function<void(ErrandOutcome)>;
  // `done` is called on the loop when standard output ends: never from here. Then the errand may be
  // destroyed.
  static Result<std::unique_ptr<Errand>> start(PollLoop& loop, const RankCommand& command,
                                               Done done);
  ~Errand();
  Errand(const Errand&) = delete;
  pid_t pid() const { return process_.pid; }

 private:
  Errand(PollLoop& loop, RankProcess process, Done done);
  void read(size_t stream);

  PollLoop& loop_;
  RankProcess process_;
  Done done_;
  ErrandOutcome outcome_;
};

}  // namespace hvd::launcher
