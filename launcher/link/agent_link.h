// The launcher's connection to one agent: prepares, starts, watches and ends the ranks of one host, and
// carries their store connections. Owns the Duplex, and speaks launcher/protocol/protocol.h over it.
// Preflight creates and prepares it; JobLaunch owns and calls it afterwards. Lives on the launcher's loop
// and never blocks it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"

namespace hvd::launcher {

// The events of one agent. JobLaunch implements it. Called on the loop; must not block.
class AgentEvents {
 public:
  virtual ~AgentEvents() = default;
  // Output of a rank, byte for byte: the receiver joins the pieces into lines. The link grants the agent
  // more output of this rank only after consumed(rank, stream, size).
  virtual void on_output(int rank, OutputStream stream, ByteView bytes) = 0;
  virtual void on_output_end(int rank, OutputStream stream) = 0;
  // The answer to inspect(): a paragraph for each running rank of the host.
  virtual void on_inspected(uint32_t number, const std::string& text) = 0;
  // Output of a command that runs beside a rank.
  virtual void on_output_chunk(const OutputChunk& chunk) = 0;
  // The command has ended. All its output came before.
  virtual void on_exec_result(const ExecResult& ran) = 0;
  // The rank has read `size` bytes of input: the launcher may send as many more.
  virtual void on_input_taken(int rank, size_t size) = 0;
  // The rank, or a descendant of it, is about to join this world, or has met its ranks.
  virtual void on_joined(const Joined& joined) = 0;
  // The rank has ended. Earlier output of the rank may still follow.
  virtual void on_exit(const RankExit& exit) = 0;
  // Another process than the launcher has sent SIGUSR1 or SIGUSR2 to the host's ranks.
  virtual void on_signalled(int number) = 0;
  // The host leaves an elastic job: end() is due once its ranks have left. on_ending follows if that takes
  // too long.
  virtual void on_leaving(const std::string& why) = 0;
  // The agent ends the ranks for a reason of its own; their last output and on_finished follow.
  virtual void on_ending(const std::string& why) = 0;
  // All ranks have ended, all output was delivered, and the host has no process or file of the job.
  virtual void on_finished() = 0;
  // Before on_finished: the host's ranks gave no sign that they know of each other (Finished).
  virtual void on_independent() {}
  virtual void on_pmix(const PmixReport& report) { static_cast<void>(report); }
  // The link broke before on_finished. Called at most once, as the last event. If the link breaks before
  // start() returns, prepare(), state() or start() returns the error instead, unless hold() was called
  // before and start() was not.
  virtual void on_lost(const Status& why) = 0;
  // The agent has not answered a ping for this long: repeated every second at most.
  virtual void on_silence(double seconds) { static_cast<void>(seconds); }
  // The agent has answered a ping.
  virtual void on_answer() {}
  // The agent has ended its ranks, because this process had sent nothing for this long, although the agent was not
  // silent itself: this process stood still. on_lost follows.
  virtual void on_standstill(double seconds) { static_cast<void>(seconds); }
  // A rank has opened a connection to the store. The callee takes ownership of the launcher's end.
  virtual void on_store_connection(net::StreamSocket socket) = 0;
};

// The environment of --stage-env for one host. The link owns it while the host gets the environment.
class EnvironmentFeed {
 public:
  virtual ~EnvironmentFeed() = default;
  virtual EnvironmentOffer offer() const = 0;
  // The host wants the files. Returns where it gets them. `wake`: called when there are more digests().
  virtual EnvironmentSource join(const MasterCandidates& own, std::function<void()> wake) = 0;
  // The hashes of the first chunks.
  virtual const std::vector<Digest>& digests() const = 0;
  virtual uint64_t chunks() const = 0;
  // Returns a chunk whose digest is known or is that of the next one, which it adds to digests().
  virtual Result<std::string> read(uint64_t number) = 0;
  // The host gets the rest from the launcher, for this reason.
  virtual void on_detour(const std::string& why) = 0;
};

class AgentLink {
 public:
  // Returns the next piece of the code of --stage, or nullopt after the last.
  using NextPart = std::function<Result<std::optional<StagePart>>()>;
  // Returns the pieces of the launcher's package.
  using PackageParts = std::function<net::Task<Result<NextPart>>()>;
  // Returns the environment of --stage-env for the Python of a host.
  using Environment =
      std::function<net::Task<Result<std::unique_ptr<EnvironmentFeed>>>(EnvironmentWanted)>;

  // `events` must outlive the link.
  AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
            AgentEvents& events);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;

  // Waits for the agent's hello and sends it the job. The agent checks all that it can check before the
  // ranks start: working directory, program on PATH. An error is one sentence about that host. The
  // caller bounds the time (and calls close).
  // `code`: called during prepare for the next piece, at the speed of the host. `package`: called once if the host
  // wants the package that the job offers. `environment`: called once if the job has an environment.
  net::Task<Status> prepare(const HostJob& job, NextPart code = {}, PackageParts package = {},
                            Environment environment = {});
  // Between prepare and start: the reason why the link is lost, or ok.
  Status state() const;
  // From now until start(), on_lost reports a loss. Returns state(), which reports an earlier one.
  Status hold();
  // The versions of Python and of the packages on that host, after a prepare that asked for them.
  const std::vector<std::pair<std::string, std::string>>& versions() const;
  // One of them, or empty.
  std::string version_of(std::string_view name) const;
  // host_identity() of the agent, after prepare. Empty where its /proc does not say.
  std::string machine() const;
  // OMP_NUM_THREADS that the agent sets for each rank, or 0; after prepare.
  uint32_t threads() const;
  // The candidates for the master endpoint, from the agent of rank 0's host, after prepare.
  const MasterCandidates& candidates() const;
  // Asks the agent which addresses of rank 0's host it can reach. Takes a few seconds at most. The
  // result is empty when the link is lost, and start() then reports the loss.
  net::Task<Reached> test_reachability(const MasterCandidates& candidates);
  // Starts the ranks that prepare has checked.
  net::Task<Status> start(const StartOrder& order);
  // Sends a signal to every rank's process group. A rank that then ends has by_agent false.
  void signal(int number);
  // Ends all ranks: sends the job's end signal, and after the grace period SIGKILL, to all descendants.
  // on_finished follows. A second call may shorten the grace period. `signal`: SIGTERM or SIGHUP that
  // ended the launcher. The ranks then get that signal, unless they already have it, and the job's grace
  // period.
  void end(double grace_seconds, int signal = 0);
  // Ends one rank, as end() does all. on_exit follows, and the other ranks go on.
  void end_rank(int rank, double grace_seconds);
  // The host counts as lost, but its agent may only be cut off: orders the end of its ranks without grace, for when
  // the agent reads it. The one event that follows is on_end: the agent confirms that they have ended.
  void give_up(std::function<void()> on_end);
  void consumed(int rank, OutputStream stream, size_t size);
  // Asks for the state of the ranks. on_inspected with that number follows.
  void inspect(uint32_t number, InspectDetail detail);
  // As LongestWait.
  void show_longest_wait(uint32_t microseconds);
  // Asks where a rank is while others wait for it, as InspectLate. The same follows.
  void inspect_late(uint32_t number, int rank, uint32_t late_microseconds);
  // The agent may use this py-spy for such questions; `parts` is called once if its host has no copy.
  void offer_stack_tool(const StackToolOffer& offer, PackageParts parts);
  // Sends an order about a command that runs beside a rank. After a Run, on_output_chunk and on_exec_result follow.
  void pass(const Message& order);
  // Sends standard input to a rank whose job has input. No bytes: end of file.
  void give_input(int rank, ByteView bytes);
  // Whether a ping waits for its answer, and for how long the oldest one has waited at the last ping.
  bool is_unanswered() const;
  double silence_seconds() const;
  // Asks the agent to pause the lease before SIGTSTP stops the launcher. Returns when the agent has
  // paused it, or an error after two seconds. The link renews the lease a second after that time, or
  // as soon as the launcher runs again after that.
  net::Task<Status> suspend();
  // After on_finished: returns when the agent knows that its last message has arrived, and has ended the
  // link; else at once. The caller bounds the time (and calls close).
  net::Task<void> wait_for_end();
  // Drops the link. The agent then ends all ranks. No event follows.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
