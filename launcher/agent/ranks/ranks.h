// The ranks of this host: starts them, reports their ends, and relays their output. Reports an end immediately,
// even while a forked child holds the rank's pipes open. The agent owns this object. Lives on the agent's
// loop.
#pragma once

#include <sys/resource.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/agent/binding/host_share.h"
#include "launcher/agent/host/library_users.h"
#include "launcher/agent/host/process_activity.h"
#include "launcher/agent/host/process_snapshot.h"
#include "launcher/agent/link/outbox.h"
#include "launcher/agent/ranks/end_signals.h"
#include "launcher/agent/ranks/gpu_use.h"
#include "launcher/agent/ranks/rank_meters.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/agent/ranks/rank_program.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class Ranks {
 public:
  // Returns the variables that a rank gets in addition to the argument, its environment.
  using MoreEnvironment = std::function<Environment(const Environment&)>;

  // Calls `on_other` for every reaped process that is not a rank.
  Ranks(net::EventLoop& loop, Outbox& outbox, std::function<void(pid_t, int status)> on_other)
      : loop_(loop), outbox_(outbox), on_other_(std::move(on_other)) {}
  ~Ranks();

  // `program`: the executable of the command on this host. `environment`: the environment of all ranks.
  void prepare(const HostJob& job, uint32_t output_credit, const std::string& program,
               const Environment& environment, const ProcessLimits& limits, HostShare share);
  // `master_port`: where rank 0 of this host may listen, or 0. Starts the first ranks; returns the first error. The
  // caller must call start_more() while is_starting().
  Status start(uint16_t master_port, MoreEnvironment more);
  // Starts at most kRanksAtOnce more ranks, so that the agent can read its link between two calls.
  Status start_more();
  bool is_starting() const { return next_ < commands_.size() && more_; }
  void signal(int number);
  // Sends the signal to processes of one rank, chosen by end_signals.h, and SIGKILL to its process group after
  // the grace period. The other ranks continue.
  void end(int rank, int signal, double grace_seconds);
  // Sends the signal to all descendants of the agent, except some processes of ranks (end_signals.h).
  void end_all(int signal);
  // Call when the process `pid`, which belongs to the rank, has called hvd.init().
  void on_joined(int rank, pid_t pid);
  Deadline deadline() const;
  void on_deadline();
  // Reaps all ended processes, including orphans, and reports ended ranks to the launcher.
  // `by_agent`: the agent is ending the ranks; `is_killing`: by SIGKILL.
  void reap(bool by_agent, bool is_killing = false);
  // Returns true if no rank runs, also before the start.
  bool have_ended() const { return running_ == 0 && !is_starting(); }

  // A snapshot of a running rank. `command` is valid while the Ranks object exists.
  struct Snapshot {
    int rank = 0;
    pid_t pid = -1;  // the rank's first process
    const RankCommand* command = nullptr;
    bool has_joined = false;  // the rank has called hvd.init()
    std::string activity;     // for kActivity and kPlaces
    // With other details: the first process, or all processes.
    std::vector<ProcessSnapshot> processes;
  };
  std::vector<Snapshot> snapshots(InspectDetail detail);
  HostSample sample(SampleGroups groups, const GpuUse& gpus);
  // Compares the variables of the ranks' programs with the launcher's, for samples and ends of ranks. Returns whether
  // more looks are needed: a rank with changed variables may search for others, or a rank has not loaded PyTorch although
  // another rank has. `programs`: by the rank's first process.
  bool compare(const std::map<pid_t, LibraryUsers::Program>& programs);
  // Writes the longest wait of all ranks in a step into the ranks' pages. Each rank computes its lateness from it.
  void show_longest_wait(uint32_t microseconds) const { meters_.show_longest_wait(microseconds); }
  // Returns RankMeters::late_moment() of the rank with this number.
  std::optional<Clock::time_point> late_moment(int rank, std::chrono::microseconds late) const;
  // Returns the command of a running rank, else null.
  const RankCommand* command_of(int rank) const;
  // Returns the command of any running rank, else null.
  const RankCommand* any_command() const;
  // Returns the rank of a process: the first process of this rank is `pid`, an ancestor of `pid`, or the leader of the
  // process group.
  std::optional<int> rank_of(pid_t pid) const;
  // Queues input for a rank; empty bytes mean end of file. An error means that the launcher violated
  // the protocol.
  Status give_input(int rank, std::string_view bytes);
  // Grants credit for the output of a stream. An error means that the launcher violated the protocol.
  Status grant(uint32_t stream, uint32_t credit);
  // Call when no process of the job remains: the pipes then contain the last output.
  void expect_no_more_output();
  // Returns true if all output of the ranks is in the outbox.
  bool is_output_ended() const { return open_outputs_ == 0; }
  // Call after the link's end: reads and drops further output, so that a full pipe does not block ranks that
  // clean up.
  void discard_output();

 private:
  struct Output {
    UniqueFd pipe;
    net::Credit credit;
    uint32_t stream = 0;
  };
  struct Rank {
    int number = 0;
    pid_t pid = -1;    // -1 after the rank's end
    pid_t group = -1;  // the rank's process group; -1 before the start
    std::array<Output, 2> outputs;
    UniqueFd input;      // closed if the rank has no input, or has closed its input
    std::string unread;  // input that was not yet written to the pipe
    bool input_ends = false;
    bool is_ended_alone = false;  // end() was called for this rank
    bool has_joined = false;
    Deadline kill_at = Deadline::never();
    RankProgram program;
  };

  void adopt(Rank& rank, RankProcess process);
  void watch(Rank& rank);
  void pump(Output& output);
  void finish(Output& output);
  void feed(Rank& rank);
  void stop_feeding(Rank& rank);
  void add_causes(RankExit& exit, const rusage& used);
  std::vector<pid_t> first_processes() const;

  net::EventLoop& loop_;
  Outbox& outbox_;
  std::function<void(pid_t, int)> on_other_;
  HostShare share_;                    // holds the locks of the ranks' cores
  std::vector<RankCommand> commands_;  // the command of each rank, by index in ranks_
  std::vector<std::unique_ptr<Rank>> ranks_;
  SideBySide threads_;
  MoreEnvironment more_;  // empty when all ranks have been started
  size_t next_ = 0;       // index of the next rank to start
  EndSignals end_signals_;
  ProcessActivity activity_;
  RankMeters meters_;
  uint32_t output_credit_ = 0;
  uint16_t master_port_ = 0;
  size_t running_ = 0;
  size_t open_outputs_ = 0;
  bool is_started_ = false;
  bool is_discarding_ = false;
  bool is_last_output_ = false;
  std::optional<uint64_t> oom_kills_;  // the last known kill count
};

}  // namespace hvd::launcher
