// The launcher's end of one agent: prepares, starts, watches and ends the ranks of one host, and
// carries their store connections. Speaks launcher/agent/protocol.h over a Duplex. Lives on the
// launcher's loop and never blocks it.
#pragma once

#include <memory>

#include "base/result.h"
#include "launcher/agent/host_job.h"
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
  // At once: output that the rank wrote before may still follow.
  virtual void on_exit(const RankExit& exit) = 0;
  // All ranks have ended, all output was delivered and nothing of the job is left on the host.
  virtual void on_finished() = 0;
  // The link broke before on_finished. Called at most once, and nothing after it. A link that
  // breaks while prepare() or start() waits is their error instead.
  virtual void on_lost(const Status& why) = 0;
  // A rank opened a connection to the store; the callee owns the socket's far end from here on.
  virtual void on_store_connection(net::StreamSocket socket) = 0;
};

class AgentLink {
 public:
  // `events` must outlive the link.
  AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
            AgentEvents& events);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;

  // Waits for the agent's greeting, hands it the job and lets it try everything that can be tried
  // before anything starts: working directory, program on PATH. An error is one sentence about
  // that host. The caller bounds the time (and calls close).
  net::Task<Status> prepare(const HostJob& job);
  // Starts the ranks that prepare has checked.
  net::Task<Status> start();
  // Delivers a signal to every rank's process group. What follows is not by_agent.
  void signal(int number);
  // Ends all ranks: SIGTERM, after the grace SIGKILL, of all descendants. on_finished follows. A
  // second call with a shorter grace hastens it.
  void end(double grace_seconds);
  void consumed(int rank, OutputStream stream, size_t size);
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
