// The ranks of this host: starts them, reports their ends, and relays their output. Reports an end at
// once, even while a forked child holds the rank's pipes open. The agent owns and calls it. Lives on
// the agent's loop.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launcher/agent/loop/outbox.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/agent/ranks/rank_process.h"

namespace hvd::launcher {

class Ranks {
 public:
  // Computes the variables that a rank gets beside the job's environment, which is the argument.
  using MoreEnvironment = std::function<Environment(const Environment&)>;

  // `on_other`: that another process than a rank has been waited for.
  Ranks(PollLoop& loop, Outbox& outbox, std::function<void(pid_t, int status)> on_other)
      : loop_(loop), outbox_(outbox), on_other_(std::move(on_other)) {}
  ~Ranks();

  // `program` is the file that the command means here, `environment` that of all ranks.
  void prepare(const HostJob& job, uint32_t output_credit, const std::string& program,
               const Environment& environment);
  // Starts all at once; an error is of the first that fails.
  Status start(const MoreEnvironment& more);
  void signal(int number);
  // Waits for whatever has ended, ranks or orphans, and announces the ranks among it. `by_agent`:
  // the agent has told them to end; `is_killing`: by SIGKILL.
  void reap(bool by_agent, bool is_killing = false);
  // True when none runs, also when none was started.
  bool have_ended() const { return running_ == 0; }

  // Where the running ranks are, a paragraph for each; with stacks also what is below them.
  std::string snapshots(bool with_stacks) const;
  // How a rank that runs was started; none when it does not.
  const RankCommand* command_of(int rank) const;
  // The rank whose process this is, or whose descendant it is.
  std::optional<int> rank_of(pid_t pid) const;
  // Queues input for a rank; empty bytes are end of file. An error means that the launcher broke
  // the protocol.
  Status give_input(int rank, std::string_view bytes);
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
    std::array<Output, 2> outputs;
    UniqueFd input;      // none when the rank has none, or reads it no more
    std::string unread;  // of the input, not yet in the pipe
    bool input_ends = false;
  };

  void adopt(Rank& rank, RankProcess process);
  void watch(Rank& rank);
  void pump(Output& output);
  void finish(Output& output);
  void feed(Rank& rank);
  void stop_feeding(Rank& rank);

  PollLoop& loop_;
  Outbox& outbox_;
  std::function<void(pid_t, int)> on_other_;
  std::vector<RankCommand> commands_;  // of ranks_, at the same place
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint32_t output_credit_ = 0;
  size_t running_ = 0;
  size_t open_outputs_ = 0;
  bool is_started_ = false;
  bool is_discarding_ = false;
  bool is_last_output_ = false;
  std::optional<uint64_t> oom_kills_;  // that are known of
};

}  // namespace hvd::launcher
