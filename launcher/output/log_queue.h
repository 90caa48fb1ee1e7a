// Passes the output of a job on to the process that writes its log, over a SOCK_SEQPACKET socket: each packet is a
// record (protocol/record.h) of OutputChunk. Never blocks: what the process does not take waits here, beyond a limit the
// oldest is lost, and the log says so. RecordWriter owns it, over all launches of the job; one thread uses it.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class LogQueue {
 public:
  explicit LogQueue(UniqueFd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  // Whole lines. `rank`: -1 for lines of the launcher.
  void write(int rank, bool is_error, std::string_view lines);
  // Loses the oldest of what waits, but for `most` bytes.
  void keep_newest(size_t most);
  // Sends what the socket takes. Returns whether nothing waits.
  bool flush();
  // The bytes that wait, or are lost and not yet in a notice.
  size_t missing() const { return waiting_bytes_ + lost_; }

 private:
  struct Packet {
    std::string record;
    size_t size = 0;  // bytes of its lines
  };
  UniqueFd socket_;
  std::deque<Packet> waiting_;
  size_t waiting_bytes_ = 0;
  size_t lost_ = 0;         // before all that waits
  bool is_broken_ = false;  // the process has ended
};

}  // namespace hvd::launcher
