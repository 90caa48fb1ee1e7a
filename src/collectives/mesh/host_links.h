// One rank's links to the ranks on its own host: mailboxes, the sleep state and the end of each rank, and the cause of
// a failure. Owns the shared-memory region and the doorbells. The mesh owns HostLinks. One caller at a time; never
// waits.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "collectives/shm/shared_region.h"

namespace hvd::collectives {

class HostLinks {
 public:
  // `local` is this rank's index among the ranks of the host. Each rank has a doorbell (eventfd).
  HostLinks(std::unique_ptr<SharedRegion> region, std::vector<UniqueFd> doorbells, size_t local);
  ~HostLinks();

  size_t count() const { return doorbells_.size(); }
  size_t local() const { return local_; }
  SharedRegion& region() { return *region_; }
  int doorbell() const { return doorbells_[local_].get(); }
  void silence_doorbell();

  // Messages between two ranks arrive in order, once and complete.
  void send(size_t to, ByteView message);
  using Receiver = std::function<void(size_t from, ByteView message)>;
  // Passes received messages to `receiver`; returns true when any data moved.
  bool poll(const Receiver& receiver);
  bool has_messages() const;
  // Returns whether messages wait for room in a mailbox.
  bool has_output() const { return waiting_ > 0; }
  bool flush();

  // Marks this rank as asleep. Another rank that changes a value for which this rank may wait then rings its doorbell.
  void fall_asleep();
  void wake_up();
  // Wakes the sleeping ranks of the mask. The caller must first store the value for which the ranks
  // wait, with sequential consistency.
  void wake(const LocalMask& mask);
  bool anyone_sleeps(const LocalMask& mask) const;
  const LocalMask& everyone() const { return everyone_; }

  // Announces to the other ranks, once, that this rank leaves without an error.
  void depart();
  bool departed(size_t local) const;
  // Counts the ranks that have departed.
  uint32_t left_count() const;

  // Returns the host's first failure, equal on all ranks of the host.
  Status failure() const;
  bool has_failed() const { return region_->header().failure.load(std::memory_order_seq_cst) == 2; }
  // Records `cause`, unless a rank has already recorded a failure; returns the recorded failure.
  Status fail(const Status& cause);

 private:
  struct Outgoing {
    Bytes message;
    size_t sent = 0;
  };
  bool push(size_t to, ByteView message, size_t& sent);

  std::unique_ptr<SharedRegion> region_;
  std::vector<UniqueFd> doorbells_;
  size_t local_;
  size_t words_;
  LocalMask everyone_{};
  RankBlock& mine_;
  uint64_t message_head_ = 0;
  std::vector<std::deque<Outgoing>> outgoing_;
  size_t waiting_ = 0;  // messages in outgoing_
  std::vector<Bytes> incoming_;
  bool has_departed_ = false;
};

}  // namespace hvd::collectives
