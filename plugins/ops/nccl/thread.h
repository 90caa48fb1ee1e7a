// The one thread of a rank that calls NCCL and the CUDA runtime, for all process sets. NCCL allows one
// thread at a time in a communicator and one order of launches on a device. The progress thread, often a
// thread of the user, must not wait in the driver, and must keep its current device. NcclThread owns
// the communicators and a stream. The batches of all sets run on this stream in the order of their
// starts, equal on all ranks. The Backend starts the thread with the first batch, and owns it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "horovod/plugin.h"
#include "ops/common/library_thread.h"
#include "ops/nccl/batch.h"
#include "ops/nccl/channel.h"
#include "ops/nccl/memory.h"

namespace hvd::ops::nccl {

struct ThreadPlan {
  // A copy of the functions, since a thread that hangs in the driver may outlive the backend. An error: the reason why
  // this rank lacks NCCL.
  Result<NcclApi> api;
  Memory& memory;
  const hvd_plugin_host& host;
  bool is_torus = false;            // always hierarchical, regardless of the batch's tuning
  int device = HVD_UNKNOWN_DEVICE;  // if unknown, local_rank selects the GPU
  int local_rank = 0;
  double start_seconds = 600;
  std::string hostname;  // may be empty
  std::shared_ptr<WakeEvent> event;
};

// A process set in NCCL. The thread opens the channel with the first batch.
struct NcclSet {
  const int32_t id;
  const std::string name;  // the prefix of the set's keys in the store
  const std::vector<int32_t> members;
  const RankInSet place;
  const std::optional<Grid> grid;
  const std::vector<int32_t> indexes;  // 0, 1, ... for the members
  std::unique_ptr<Channel> channel{};  // used by the thread only
};

class NcclBatch;

class NcclThread : public LibraryThread {
 public:
  explicit NcclThread(ThreadPlan plan)
      : LibraryThread("hvd-nccl", "NCCL", plan.event), plan_(std::move(plan)) {}

  // Queues the close of the set's communicator. All batches of the set must be over.
  void drop(std::shared_ptr<NcclSet> set);
  // Makes the thread abort running batches and end. Never waits.
  void begin_abort();
  // Ends the thread. Afterwards no call touches the memory of batches.
  void end(Deadline until);
  // Returns an error if the creation of a blocking communicator has exceeded the start timeout.
  Status judge() const;
  // Returns whether the thread is in a call that waits for other ranks and whose end wakes no other thread: the
  // creation of a communicator by NCCL before 2.14.
  bool is_blocked() const;
  // Returns whether the GPU did not respond to an abort, and may write to the memory of batches forever.
  bool is_silent() const { return is_silent_.load(); }

  // Enqueues a batch, or runs a trial to its end. Only the thread calls it.
  Status enqueue(NcclBatch& batch, const hvd_batch& what);
  // Adds host and device to an error. Only the thread calls it.
  Status placed(const Status& status) const;
  // Reads the times of a batch whose end the stream has reached, and takes its events back. Only the thread calls it.
  void read_times(NcclBatch& batch);

 protected:
  Status open_library() override;
  Status look() override;
  std::chrono::milliseconds pace() const override { return std::chrono::milliseconds(100); }
  void close_library(bool failed, Batches running) override;

 private:
  class Aborts;
  const NcclApi& api() const { return *plan_.api; }
  Status open_device();
  Status choose_device();
  Status check_device(const hvd_batch& what) const;
  Status run(NcclBatch& batch, const hvd_batch& what);
  Status open(const std::shared_ptr<NcclSet>& set);
  Status try_set(const std::shared_ptr<NcclSet>& set);
  void log_choice(const NcclSet& set, const Status& status) const;
  Status compare_members(const NcclSet& set, const Status& own, const Deadline& deadline);
  Status open_channel(const std::shared_ptr<NcclSet>& set, const Deadline& deadline);
  Status create(NcclSet& set, const Deadline& deadline);
  Status add_sub_communicators(NcclSet& set);
  Status add_alone(Channel& channel);
  Result<abi::UniqueId> exchange_id(const std::string& key, int index, int size,
                                    const Deadline& deadline);
  bool goes_by_hosts(const NcclSet& set, const hvd_batch& batch) const;
  void close_apart(const std::shared_ptr<NcclSet>& set);
  Status late() const;
  void abort_library();
  void wait_for_idle_stream(const Deadline& limit);
  std::shared_ptr<NcclThread> self() {
    return std::static_pointer_cast<NcclThread>(shared_from_this());
  }

  const ThreadPlan plan_;
  // Only the thread uses these members, up to done_.
  std::vector<std::shared_ptr<NcclSet>> sets_;  // process sets with a channel
  struct Closing {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_over;
  };
  std::vector<Closing> closings_;  // threads that close communicators of removed sets
  int device_ = -1;
  bool has_spilled_ = false;  // an output went to host memory, and a line was logged
  void* stream_ = nullptr;
  void* notices_ = nullptr;    // stream for host functions
  EventRing* ring_ = nullptr;  // for the begins and ends of batches
  void* done_ = nullptr;       // event of the end of the last batch
  // The time limit of the communicator that the thread is creating; max if it creates none.
  std::atomic<Clock::time_point> created_by_{Clock::time_point::max()};
  std::atomic<double> limit_seconds_{plan_.start_seconds};  // same limit, as a duration
  std::atomic<bool> aborting_{false};
  std::atomic<bool> is_silent_{false};
};

// A batch on the stream. A host function reports its end to the thread, which ends the batch. The stream calls the host
// function also after an abort.
class NcclBatch : public QueuedBatch, public std::enable_shared_from_this<NcclBatch> {
 public:
  NcclBatch(std::shared_ptr<NcclThread> thread, std::shared_ptr<NcclSet> set,
            const hvd_batch& batch)
      : QueuedBatch(batch),
        thread_(std::move(thread)),
        set_(std::move(set)),
        keeps_tensors_(batch.keeps_tensors != 0),
        is_trial_(is_trial(batch)),
        is_ordered_(field_of(batch, &hvd_batch::on_stream) != nullptr) {}
  Status start() override { return thread_->enqueue(*this, batch_); }
  // Also checks for NCCL's error, since the stream of a broken communicator reaches its end too.
  Result<bool> test() override;
  void finish() override;  // writes the result of a trial to the output
  bool uses_tensors() const override { return keeps_tensors_ && thread_->is_silent(); }
  void* event() const override { return event_.load(std::memory_order_acquire); }
  std::optional<DeviceTimes> times() const override { return times_; }
  // Called on a thread of the driver when the stream has reached the end of the batch.
  void reach();

 private:
  friend class NcclThread;
  const std::shared_ptr<NcclThread> thread_;
  const std::shared_ptr<NcclSet> set_;
  // Copied from the batch, which an abandoned thread must not read.
  const bool keeps_tensors_, is_trial_, is_ordered_;
  Clock::time_point reached_at_;  // written before is_reached_
  std::atomic<bool> is_reached_{false};
  void *began_ = nullptr, *ended_ = nullptr;  // events; used by the thread only
  std::optional<DeviceTimes> times_;          // written before the end of the batch is reported
  std::atomic<void*> event_{nullptr};         // reached at the end of the batch
  std::vector<std::vector<std::byte>> kept_;
  Status outcome_;  // result of a trial
};

}  // namespace hvd::ops::nccl
