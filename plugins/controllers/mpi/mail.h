// Messages between the ranks of a job over MPI, on their own communicator. Messages from one rank to
// another arrive complete, once and in order. The MPI controller owns it. One caller at a time; only
// the end waits.
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

using hvd::mpi::Communicator;
using hvd::mpi::MpiJob;

class Mail {
 public:
  // The purpose of a message, sent as MPI's tag.
  enum class Kind { kMessage = 1, kLastWord = 2 };
  using Receiver = std::function<void(Kind kind, int32_t from, ByteView message)>;

  Mail(const MpiJob& job, std::unique_ptr<Communicator> everyone)
      : job_(job), everyone_(std::move(everyone)), arrivals_(job.world_ranks.size()) {}
  // Messages still under way keep their memory.
  ~Mail();
  Mail(const Mail&) = delete;

  Status send(Kind kind, int32_t to, ByteView message);
  // Hands over what has come. True when anything moved.
  Result<bool> poll(const Receiver& receiver);
  // Something is on its way that only poll() moves, or has come.
  bool has_work() const { return !sent_.empty() || !own_.empty() || receiving_ > 0; }
  // Drives until everything sent has left; false when it has not by then.
  bool flush(Deadline deadline);

 private:
  struct Letter {
    Kind kind;
    Bytes bytes;
    MPI_Request request;
  };
  Status check(int code) const;
  Result<bool> is_done(Letter& letter) const;
  Result<bool> look_for_arrivals();
  Result<bool> hand_over(const Receiver& receiver);
  Result<bool> forget_sent();

  const MpiJob& job_;
  const std::unique_ptr<Communicator> everyone_;
  // Letters stay where they are while MPI knows their addresses.
  std::deque<std::unique_ptr<Letter>> sent_;
  std::vector<std::deque<std::unique_ptr<Letter>>> arrivals_;  // by rank, in order
  std::deque<Bytes> own_;                                      // to this rank itself
  size_t receiving_ = 0;
};

}  // namespace hvd::controllers::mpi
