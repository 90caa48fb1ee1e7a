// Passes the output of a job to the process that writes its log, over a SOCK_SEQPACKET socket: each packet is a record
// (protocol/record.h) of OutputChunk. Never blocks: unsent data waits in this queue. Beyond a limit, drops the oldest
// data, and adds a notice to the log. RecordWriter owns this object for all launches of the job. One thread.
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
  // Queues complete lines. `rank`: -1 for lines of the launcher.
  void write(int rank, bool is_error, std::string_view lines);
  // Drops the oldest data until at most `most` bytes wait.
  void keep_newest(size_t most);
  // Sends as much as the socket accepts. Returns whether the queue is empty.
  bool flush();
  // Returns the number of bytes that wait, or that were dropped and have no notice yet.
  size_t missing() const { return waiting_bytes_ + lost_; }

 private:
  struct Packet {
    std::string record;
    size_t size = 0;  // bytes of its lines
  };
  UniqueFd socket_;
  std::deque<Packet> waiting_;
  size_t waiting_bytes_ = 0;
  size_t lost_ = 0;         // number of dropped bytes, which precede all waiting bytes
  bool is_broken_ = false;  // the process that writes the log has ended
};

}  // namespace hvd::launcher
