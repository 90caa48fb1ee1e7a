// The output of one host's ranks on the launcher's end of a link: maps each stream to its rank, and
// grants the agent credit. Owns the flow-control windows. AgentLink owns this object, passes frames to it, and
// sends the credit. Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"
#include "net/frame.h"

namespace hvd::launcher {

// The events of one agent, which AgentLink reports. JobLaunch implements them; the base class ignores them, as for a
// host without ranks. Called on the launcher's loop; must not block.
class AgentEvents {
 public:
  virtual ~AgentEvents() = default;
  // Receives output of a rank, in arbitrary pieces, which the receiver joins into lines. The link grants the agent
  // more output of this rank only after a call of consumed(rank, stream, size).
  virtual void on_output(int /*rank*/, OutputStream, ByteView /*bytes*/) {}
  virtual void on_output_end(int /*rank*/, OutputStream) {}
  // No report follows Finished. A failed start has no report, because start() returns the reason.
  virtual void on_report(const AgentReport&) {}
  // Called when the link broke before Finished: at most once, as the last event. In the states from handshake to
  // prepared and from starting to failed, prepare(), loss(), hold() or start() of AgentLink returns the error instead.
  virtual void on_lost(const Status& /*why*/) {}
  // Called at each ping while an earlier ping is unanswered. `seconds`: the time since the oldest of these.
  virtual void on_silence(double /*seconds*/) {}
  // Called when bytes from the agent arrive while a ping is unanswered.
  virtual void on_answer() {}
  // Called when the agent has ended its ranks, because this process was stopped and has sent nothing for `seconds`.
  // on_lost follows.
  virtual void on_standstill(double /*seconds*/) {}
  // Called when a rank has opened a connection to the store. The callee takes ownership of the launcher's end.
  virtual void on_store_connection(net::StreamSocket) {}
};

// The credit of one output stream, in bytes. A host has two streams per rank.
constexpr uint32_t kOutputWindow = 256 << 10;

class RankOutputs {
 public:
  // `events` receives the output, and outlives this object.
  explicit RankOutputs(AgentEvents& events) : events_(&events) {}
  void redirect(AgentEvents& events) { events_ = &events; }

  // Call once, before the first output.
  void open(const std::vector<RankSpec>& ranks);
  // Handles a frame with a rank's output. Returns an error if the agent violates the protocol.
  Status handle(const net::FrameHeader& header, ByteView payload);
  // New credit for the agent, after a reader has consumed `size` bytes.
  struct Grant {
    uint32_t stream = 0;
    uint32_t credit = 0;
  };
  std::optional<Grant> consumed(int rank, OutputStream stream, size_t size);

 private:
  struct Output {
    int rank;
    OutputStream stream;
    net::Window window{kOutputWindow};
  };

  AgentEvents* events_;
  std::map<uint32_t, Output> outputs_;
  std::map<int, size_t> index_of_rank_;
};

}  // namespace hvd::launcher
