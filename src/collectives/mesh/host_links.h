// One rank's links to the ranks on its own host: mailboxes, the sleep state and the end of each rank,
// and the cause of a failure. Owns the shared-memory region and the doorbells. The mesh owns it. One
// caller at a time; never waits.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "collectives/shm/shared_region.h"

namespace hvd::collectives {

class HostLinks {
 public:
  // `local` is this rank's index among those of the host; one doorbell (eventfd) for each.
  HostLinks(std::unique_ptr<SharedRegion> region, std::vector<UniqueFd> doorbells, size_t local);
  ~HostLinks();

  size_t count() const { return doorbells_.size(); }
  size_t local() const { return local_; }
  SharedRegion& region() { return *region_; }
  int doorbell() const { return doorbells_[local_].get(); }
  void silence_doorbell();

  // Messages of one pair arrive in order, once, whole.
  void send(size_t to, ByteView message);
  using Receiver = std::function<void(size_t from, ByteView message)>;
  // True when anything moved.
  bool poll(const Receiver& receiver);
  bool has_mail() const;
  // Messages for which there was no room yet.
  bool has_output() const { return waiting_ > 0; }
  bool flush();

  // From now on whoever changes what this rank may wait for rings its doorbell.
  void fall_asleep();
  void wake_up();
  // Wakes the sleeping ranks of the mask. The value that they await must have been stored before,
  // with sequential consistency.
  void wake(const LocalMask& mask);
  bool anyone_sleeps(const LocalMask& mask) const;
  const LocalMask& everyone() const { return everyone_; }

  // Tells the others once that this rank left in good order.
  void depart();
  bool departed(size_t local) const;
  // Changes whenever a rank departs.
  uint32_t left_count() const;

  // The host's first failure; all ranks of the host see the same one.
  Status failure() const;
  bool has_failed() const { return region_->header().failure.load(std::memory_order_seq_cst) == 2; }
  // Returns the first one, which may be another's.
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
  uint64_t mail_head_ = 0;
  std::vector<std::deque<Outgoing>> outgoing_;
  size_t waiting_ = 0;  // messages in outgoing_
  std::vector<Bytes> incoming_;
  bool has_departed_ = false;
};

}  // namespace hvd::collectives
