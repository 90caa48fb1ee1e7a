// Messages between the ranks of a job over MPI, on a separate communicator. Messages from one rank
// to another arrive complete, once and in order. The MPI controller owns the channel. One caller at a
// time; only the destructor waits.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "mpi/communicator.h"
#include "mpi/job.h"

namespace hvd::controllers::mpi {

using hvd::mpi::MpiComm;
using hvd::mpi::MpiJob;

class MessageChannel {
 public:
  // The purpose of a message, sent as MPI's tag.
  enum class Kind { kMessage = 1, kAbort = 2 };
  using Receiver = std::function<void(Kind kind, int32_t from, ByteView message)>;

  MessageChannel(const MpiJob& job, std::unique_ptr<MpiComm> everyone)
      : job_(job), everyone_(std::move(everyone)), arrivals_(job.world_ranks.size()) {}
  // Leaves the memory of messages in flight allocated.
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;

  Status send(Kind kind, int32_t to, ByteView message);
  // Passes received messages to the owner and advances sends. Returns true if any message moved.
  Result<bool> poll(const Receiver& receiver);
  // Returns true if a send is incomplete, which only poll() advances, or a message waits to be received.
  bool has_work() const { return !sent_.empty() || !own_.empty() || receiving_ > 0; }
  // Polls until all sends are complete; returns false if the deadline passed first.
  bool flush(Deadline deadline);

 private:
  struct PendingMessage {
    Kind kind;
    Bytes bytes;
    MPI_Request request;
  };
  Status check(int code) const;
  Result<bool> is_done(PendingMessage& pending) const;
  Result<bool> probe_messages();
  Result<bool> deliver(const Receiver& receiver);
  Result<bool> remove_sent();

  const MpiJob& job_;
  const std::unique_ptr<MpiComm> everyone_;
  // MPI keeps the addresses of messages, so they must not move.
  std::deque<std::unique_ptr<PendingMessage>> sent_;
  std::vector<std::deque<std::unique_ptr<PendingMessage>>> arrivals_;  // by rank, in order
  std::deque<Bytes> own_;                                              // messages to this rank
  size_t receiving_ = 0;
};

}  // namespace hvd::controllers::mpi
