// The ranks of this host: starts them, learns of their end, relays what they write. Announces an
// end at once, also while a forked child keeps the rank's pipes open.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launcher/agent/outbox.h"
#include "launcher/agent/poll_loop.h"
#include "launcher/agent/rank_process.h"

namespace hvd::launcher {

class Ranks {
 public:
  // `on_end` is told, on the loop, that a rank may have ended: reap() finds out.
  // What is told to a rank beside the job's environment, which it gets to see.
  using MoreEnvironment = std::function<Environment(const Environment&)>;

  Ranks(PollLoop& loop, Outbox& outbox, std::function<void()> on_end)
      : loop_(loop), outbox_(outbox), on_end_(std::move(on_end)) {}
  ~Ranks();

  // Tries all that can be tried before anything starts. `environment` is the agent's own.
  Status prepare(const HostJob& job, uint32_t output_credit, const Environment& environment);
  // Starts all; at the first that fails it stops.
  Status start(const MoreEnvironment& more);
  void signal(int number);
  // Waits for whatever has ended, ranks or orphans, and announces the ranks among it. `by_agent`:
  // the agent has told them to end.
  void reap(bool by_agent);
  // True when none runs, also when none was started.
  bool have_ended() const { return running_ == 0; }

  // More output of a stream is wanted. An error means that the launcher broke a rule.
  Status grant(uint32_t stream, uint32_t credit);
  // No process of the job is left: what the pipes hold now is the last of it.
  void expect_no_more_output();
  // All that was written has been put into the outbox.
  bool is_output_ended() const { return open_outputs_ == 0; }
  // The launcher is gone: output is read on, so that ranks can clean up undisturbed, and dropped.
  void discard_output();

 private:
  struct Output {
    UniqueFd pipe;
    net::Credit credit;
    uint32_t stream = 0;
  };
  struct Rank {
    int number = 0;
    pid_t pid = -1;  // -1 when it has ended
    UniqueFd pidfd;
    std::array<Output, 2> outputs;
  };

  void watch(Rank& rank);
  void pump(Output& output);
  void finish(Output& output);

  PollLoop& loop_;
  Outbox& outbox_;
  std::function<void()> on_end_;
  std::vector<RankCommand> commands_;  // of ranks_, at the same place
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint32_t output_credit_ = 0;
  size_t running_ = 0;
  size_t open_outputs_ = 0;
  bool is_discarding_ = false;
  bool is_last_output_ = false;
};

}  // namespace hvd::launcher
