// The output of one host's ranks on the launcher's end of a link: which stream is which rank's, and how
// much the agent may send ahead. Owns these windows; never reads or writes the link. Lives in an
// AgentLink, on the launcher's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

// What a rank may write ahead of its reader; of a whole host, times twice its ranks.
constexpr uint32_t kOutputWindow = 256 << 10;

class RankOutputs {
 public:
  // `events` hears of output and outlives this.
  explicit RankOutputs(AgentEvents& events) : events_(events) {}

  // Once, before any output.
  void open(const std::vector<RankSpec>& ranks);
  // A frame of a rank's output. An error means that the agent broke a rule.
  Status handle(const net::FrameHeader& header, ByteView payload);
  // What to grant the agent after a reader took so much.
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

  AgentEvents& events_;
  std::map<uint32_t, Output> outputs_;
  std::map<int, size_t> index_of_rank_;
};

}  // namespace hvd::launcher
