// The output of one host's ranks on the launcher's end of a link: maps each stream to its rank, and
// grants the agent credit. Owns the flow-control windows. AgentLink owns this object, passes frames to it, and
// sends the credit. Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "launcher/link/agent_events.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

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
