// The events of one agent, which AgentLink receives. JobLaunch implements them. Called on the launcher's loop; must not
// block.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

class AgentEvents {
 public:
  virtual ~AgentEvents() = default;
  // Receives output of a rank, in arbitrary pieces, which the receiver joins into lines. The link grants the agent
  // more output of this rank only after a call of consumed(rank, stream, size).
  virtual void on_output(int rank, OutputStream stream, ByteView bytes) = 0;
  virtual void on_output_end(int rank, OutputStream stream) = 0;
  // No report follows Finished. A failed start has no report, because start() returns the reason.
  virtual void on_report(const AgentReport& report) = 0;
  // Called when the link broke before Finished: at most once, as the last event. In the states from handshake to
  // prepared and from starting to failed, prepare(), loss(), hold() or start() of AgentLink returns the error instead.
  virtual void on_lost(const Status& why) = 0;
  // Called at most once a second while the agent does not answer a ping. `seconds`: time since its last answer.
  virtual void on_silence(double seconds) { static_cast<void>(seconds); }
  // Called when the agent has answered a ping.
  virtual void on_answer() {}
  // Called when the agent has ended its ranks, because this process was stopped and has sent nothing for `seconds`.
  // on_lost follows.
  virtual void on_standstill(double seconds) { static_cast<void>(seconds); }
  // Called when a rank has opened a connection to the store. The callee takes ownership of the launcher's end.
  virtual void on_store_connection(net::StreamSocket socket) = 0;
};

}  // namespace hvd::launcher
