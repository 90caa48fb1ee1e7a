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
  // Output of a rank, in arbitrary pieces, which the receiver joins into lines. The link grants the agent
  // more output of this rank only after a call of consumed(rank, stream, size).
  virtual void on_output(int rank, OutputStream stream, ByteView bytes) = 0;
  virtual void on_output_end(int rank, OutputStream stream) = 0;
  // No report follows Finished. A failed start has no report, because start() returns the reason.
  virtual void on_report(const AgentReport& report) = 0;
  // The link broke before Finished. Called at most once, as the last event. If the link breaks before
  // start() returns, prepare(), state() or start() returns the error instead, unless hold() was called
  // before and start() was not.
  virtual void on_lost(const Status& why) = 0;
  // The agent has not answered a ping for this long. Called at most once a second.
  virtual void on_silence(double seconds) { static_cast<void>(seconds); }
  // The agent has answered a ping.
  virtual void on_answer() {}
  // The agent has ended its ranks, because this process was stopped: it sent nothing for this long, although the agent
  // answered its pings. on_lost follows.
  virtual void on_standstill(double seconds) { static_cast<void>(seconds); }
  // A rank has opened a connection to the store. The callee takes ownership of the launcher's end.
  virtual void on_store_connection(net::StreamSocket socket) = 0;
};

// Returns the next piece of the files, or nullopt after the last piece.
using NextPart = std::function<Result<std::optional<StagePart>>()>;

// The environment of --stage-env for one host. The link owns it while the host receives the environment.
class EnvironmentFeed {
 public:
  virtual ~EnvironmentFeed() = default;
  virtual EnvironmentOffer offer() const = 0;
  // The host requests the files. Returns the source from which the host gets them.
  virtual EnvironmentSource join(const MasterCandidates& own) = 0;
  // Returns the pieces of the files from number `first` on.
  virtual NextPart parts(uint64_t first) = 0;
  // The host gets the remaining files from the launcher, for this reason.
  virtual void on_detour(const std::string& why) = 0;
};

class AgentLink {
 public:
  using NextPart = launcher::NextPart;
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

  // Waits for the agent's hello and sends it the job. The agent checks everything that it can check before
  // the start: for example the working directory, and the program on PATH. An error is one sentence about the host.
  // The caller limits the time, and calls close().
  // `code`: returns the next piece, at the speed of the host. `package`: called once if the host
  // requests the package that the job offers. `environment`: called once if the job has an environment.
  net::Task<Status> prepare(const HostJob& job, NextPart code = {}, PackageParts package = {},
                            Environment environment = {});
  // Between prepare and start: the reason why the link is lost, or ok.
  Status state() const;
  // From now until start(), on_lost reports a loss. Returns state(), which reports an earlier loss.
  Status hold();
  // The versions of Python and of packages on the host. Call after a prepare() that requested them.
  const std::vector<std::pair<std::string, std::string>>& versions() const;
  // The version with this name, or empty.
  std::string version_of(std::string_view name) const;
  // host_identity() of the agent. Call after prepare(). Empty if /proc on the host does not contain it.
  std::string machine() const;
  // The OMP_NUM_THREADS that the agent sets for each rank, or 0. Call after prepare().
  uint32_t threads() const;
  // The candidates for the master endpoint, from the agent of rank 0's host. Call after prepare().
  const MasterCandidates& candidates() const;
  // Tests which addresses of rank 0's host the agent can reach. Takes a few seconds at most. The
  // result is empty if the link is lost; start() then reports the loss.
  net::Task<Reached> test_reachability(const MasterCandidates& candidates);
  // Starts the ranks that prepare has checked.
  net::Task<Status> start(const StartOrder& order);
  // Sends an order of protocol.h, which defines the agent's answers.
  void send(const Message& order);
  // For a host that counts as lost but may only be cut off: orders the agent to end its ranks without grace, once it
  // reads this. The only later event is on_end: the agent confirms that the ranks have ended.
  void give_up(std::function<void()> on_end);
  void consumed(int rank, OutputStream stream, size_t size);
  // The agent may use this py-spy for queries with stacks; `parts` is called once if its host has no copy.
  void offer_stack_tool(const StackToolOffer& offer, PackageParts parts);
  // Whether a ping waits for its answer, and, as of the last ping, for how long the oldest ping has waited.
  bool is_unanswered() const;
  double silence_seconds() const;
  // Requests that the agent pauses the lease before SIGTSTP stops the launcher. Returns when the agent has
  // paused it, or an error after two seconds. The link renews the lease one second after this time limit, or
  // later as soon as the launcher runs again.
  net::Task<Status> suspend();
  // After Finished: returns when the agent knows that its last message has arrived, and has ended the
  // link. Otherwise returns at once. The caller limits the time, and calls close().
  net::Task<void> wait_for_end();
  // Drops the link. The agent then ends all ranks. No event follows.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
