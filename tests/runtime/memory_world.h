// A controller and an op for tests, between ranks of one process in its memory. Simple and slow,
// with simulated failures of links. Uses only the plugin ABI.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "horovod/plugin.h"
#include "runtime/delayed_delivery.h"

namespace hvd::test {

class MemoryWorld {
 public:
  // machines[rank] is the rank's host number in hvd_controller_v1.hosts.
  explicit MemoryWorld(std::vector<int32_t> machines);
  ~MemoryWorld();
  MemoryWorld(const MemoryWorld&) = delete;

  // Key of the world's address (as text) in the job's store.
  static constexpr const char* kKey = "memory-world";
  std::string address() const;

  // Delays each message by a random time. Call before ranks start.
  void be_late(unsigned seed, std::chrono::microseconds most) {
    delayed_delivery = std::make_unique<DelayedDelivery>(seed, most);
  }

  // Holds back the messages from one rank to another, until release() delivers them in order.
  void hold(int32_t from, int32_t to) {
    const MutexLock lock(mutex);
    held_way = {from, to};
  }
  void release();

  // From now on every rank's poll reports this rank as lost.
  void lose(int32_t rank);
  // Returns the first cause for which a rank failed all links; empty before a failure.
  std::string cause();
  // Returns the rank whose loss is the first cause, or -1.
  int32_t lost_rank();
  void fail(const char* cause, int32_t lost_rank);

  struct Message {
    int32_t from;
    std::string bytes;
  };
  struct Mailbox {
    Mutex mutex;
    std::deque<Message> messages HVD_GUARDED_BY(mutex);
    int doorbell = -1;
  };
  // One batch: the inputs of each rank.
  struct BatchInputs {
    std::vector<std::vector<std::string>> inputs;         // [member][tensor]
    std::vector<std::vector<bool>> present;               // false: the member has joined
    std::vector<std::vector<std::vector<int64_t>>> rows;  // alltoall: also per receiver
    int32_t brought = 0;
    int32_t taken = 0;
  };
  void deliver(int32_t rank, Message message);
  void put(int32_t rank, Message message);
  void ring(int32_t rank);
  void ring_all();

  // Claims batches on devices too. Set before ranks start.
  bool has_devices = false;
  // The library of this rank fails with its next batch on a device. The counts are `sent` at that time and at the abort.
  std::atomic<int32_t> failing{-1};
  std::atomic<uint64_t> sent_at_failure{0}, sent_at_abort{0};
  // The time for which each batch on a device runs there, as it reports.
  std::chrono::nanoseconds device_time{0};
  // The outputs of batches on devices that are not released. The release may come after the world's end.
  inline static std::atomic<int> outputs{0};

  const std::vector<int32_t> machines;
  std::deque<Mailbox> mailboxes;
  Mutex mutex;
  // Key: the set's members, the number of their earlier sets, and the batch's sequence.
  std::map<std::pair<std::string, uint64_t>, BatchInputs> batch_inputs HVD_GUARDED_BY(mutex);
  // By rank: set and sequence of each batch on a device, in the order of their starts.
  std::map<int32_t, std::vector<std::string>> device_batches HVD_GUARDED_BY(mutex);
  std::map<int32_t, std::vector<int32_t>> devices HVD_GUARDED_BY(mutex);  // the batches' devices
  std::string failure HVD_GUARDED_BY(mutex);
  int32_t failure_lost HVD_GUARDED_BY(mutex) = -1;
  std::pair<int32_t, int32_t> held_way HVD_GUARDED_BY(mutex){-1, -1};
  std::vector<Message> held HVD_GUARDED_BY(mutex);
  std::atomic<int32_t> lost{-1};
  std::atomic<uint64_t> sent{0};
  std::unique_ptr<DelayedDelivery> delayed_delivery;  // last: its thread uses other members
};

const hvd_plugin* memory_controller();
const hvd_plugin* memory_op();

}  // namespace hvd::test
