// The launcher's end of one agent: prepares, starts, watches and ends the ranks of one host, and
// carries their store connections. Speaks launcher/protocol/protocol.h over a Duplex. Lives on the
// launcher's loop and never blocks it.
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

// What an agent reports. Called on the loop; must not block.
class AgentEvents {
 public:
  virtual ~AgentEvents() = default;
  // Bytes as the rank wrote them; whole lines are the receiver's business. The link grants the
  // agent more output of this rank only when consumed(rank, stream, size) was called.
  virtual void on_output(int rank, OutputStream stream, ByteView bytes) = 0;
  virtual void on_output_end(int rank, OutputStream stream) = 0;
  // A paragraph for each running rank of the host.
  virtual void on_inspected(uint32_t number, const std::string& text) = 0;
  // Of a command beside a rank; the end comes behind all that it said.
  virtual void on_said(const Said& said) = 0;
  virtual void on_ran(const Ran& ran) = 0;
  // The rank takes as much more input.
  virtual void on_input_taken(int rank, size_t size) = 0;
  // The rank, or a process below it, is about to meet the ranks of this world.
  virtual void on_joined(int rank, int world_rank, int world_size) = 0;
  // At once: output that the rank wrote before may still follow.
  virtual void on_exit(const RankExit& exit) = 0;
  // Something else than this link has sent SIGUSR1 or SIGUSR2 to the host's ranks.
  virtual void on_signalled(int number) = 0;
  // The agent ends the ranks for a reason of its own; their last output and on_finished follow.
  virtual void on_ending(const std::string& why) = 0;
  // All ranks have ended, all output was delivered and nothing of the job is left on the host.
  virtual void on_finished() = 0;
  // The link broke before on_finished. Called at most once, and nothing after it. A link that
  // breaks before start() has returned is its or prepare()'s error instead, or state() tells.
  virtual void on_lost(const Status& why) = 0;
  // A rank opened a connection to the store; the callee owns the socket's far end from here on.
  virtual void on_store_connection(net::StreamSocket socket) = 0;
};

class AgentLink {
 public:
  // The next piece of what --stage sends; none behind the last.
  using NextPart = std::function<Result<std::optional<StagePart>>()>;

  // `events` must outlive the link.
  AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
            AgentEvents& events);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;

  // Waits for the agent's hello, hands it the job and lets it try everything that can be tried
  // before anything starts: working directory, program on PATH. An error is one sentence about
  // that host. The caller bounds the time (and calls close).
  // `code`: sent before, piece by piece, as fast as the host takes it; asked until prepare returns.
  net::Task<Status> prepare(const HostJob& job, NextPart code = {});
  // Between prepare and start: why the link is lost, or that it is there.
  Status state() const;
  // Of a Python program's parts on that host, after a prepare that compares.
  const std::vector<std::pair<std::string, std::string>>& versions() const;
  // OMP_NUM_THREADS that the agent sets for each rank, or 0; after prepare.
  uint32_t threads() const;
  // The candidates for the master endpoint, from the agent of rank 0's host, after prepare.
  const MasterCandidates& candidates() const;
  // Lets the agent test which addresses of rank 0's host it reaches, which takes a few seconds at
  // most. Returns nothing when the link is lost, which start() reports.
  net::Task<Reached> test_reachability(const MasterCandidates& candidates);
  // Starts the ranks that prepare has checked.
  net::Task<Status> start(const StartOrder& order);
  // Delivers a signal to every rank's process group. What follows is not by_agent.
  void signal(int number);
  // Ends all ranks: the job's end signal, after the grace SIGKILL, to all descendants. on_finished
  // follows. A second call with a shorter grace hastens it. `signal`: SIGTERM or SIGHUP that ended the
  // launcher, which the ranks get unless they have got it already; then the grace is the job's.
  void end(double grace_seconds, int signal = 0);
  void consumed(int rank, OutputStream stream, size_t size);
  // Asks where the ranks are; on_inspected with that number follows.
  void inspect(uint32_t number, bool with_stacks);
  // An order about a command beside a rank: after a Run, on_said and on_ran follow.
  void pass(const Message& order);
  // What a rank shall read, which its job gave an input; without bytes: the end.
  void give_input(int rank, ByteView bytes);
  // The launcher is about to be stopped (SIGTSTP): returns when the agent has paused the lease, or
  // after two seconds with an error. A third of the lease later, or when the launcher goes on after
  // that, the link renews the lease by itself.
  net::Task<Status> suspend();
  // Drops the link; the agent ends everything. No event follows.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
