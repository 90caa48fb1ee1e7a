// A process set's communicator in NCCL. Owns a thread that opens the channels, enqueues the batches in
// order, and checks for asynchronous errors. Only that thread calls NCCL and the CUDA runtime: the
// progress thread, often a thread of the user, must not wait there or get another current device. The
// Backend owns the NcclCommunicators.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "horovod/plugin.h"
#include "ops/common/library_thread.h"
#include "ops/nccl/batch.h"
#include "ops/nccl/grid.h"
#include "ops/nccl/memory.h"

namespace hvd::ops::nccl {

// The configuration of a process set's thread. Equal on all members, except for the index.
struct ThreadPlan {
  NcclApi api;  // a copy: a thread that hangs in the driver may outlive the backend
  Memory& memory;
  const hvd_plugin_host& host;
  std::string name;  // the prefix of the set's keys in the store
  RankInSet place;
  std::optional<Grid> grid;
  bool is_torus = false;  // always hierarchical, whatever the autotuner chose for a batch
  int device = -1;        // -1: none of its tensors has named it, and local_rank chooses
  int local_rank = 0;
  int channels = 1;
  double start_seconds = 600;
  std::shared_ptr<WakeEvent> event;
};

class NcclBatch;

class NcclThread : public LibraryThread {
 public:
  explicit NcclThread(ThreadPlan plan)
      : LibraryThread("hvd-nccl", "NCCL", plan.event), plan_(std::move(plan)) {}

  // Enqueues a batch. Called on the thread.
  Status enqueue(NcclBatch& batch, const hvd_batch& what);
  // Begins to end the thread, and to abort running batches.
  void begin_abort();
  // Ends the thread. Afterwards no call touches the memory of batches.
  void end(Deadline until);
  // Returns an error when the creation of a blocking communicator has exceeded the start timeout.
  Status judge() const;

 protected:
  Status open_library() override;
  Status look() override;
  std::chrono::milliseconds pace() const override { return std::chrono::milliseconds(100); }
  void abort_library() override;
  void close_library(bool failed, Batches running) override;

 private:
  Status choose_device();
  Result<abi::UniqueId> exchange_id(const std::string& key, int index, int size,
                                    const Deadline& deadline);
  bool goes_by_hosts(const hvd_batch& batch) const;
  Status add_sub_communicators(Channel& channel, size_t number);
  bool pause();

  const ThreadPlan plan_;
  std::vector<std::shared_ptr<Channel>> channels_;  // used by the thread only
  void* done_ = nullptr;                            // event; used by the thread only
  void* notices_ = nullptr;                         // stream; used by the thread only
  const Deadline opened_by_ = Deadline::after_seconds(plan_.start_seconds);
  std::atomic<bool> aborting_{false};
};

// A batch on a stream. A host function at the end of the stream completes it, or the thread fails it.
// Aborted streams reach their end too.
class NcclBatch : public QueuedBatch, public std::enable_shared_from_this<NcclBatch> {
 public:
  NcclBatch(NcclThread& thread, const hvd_batch& batch) : QueuedBatch(batch), thread_(thread) {}
  Status start() override { return thread_.enqueue(*this, batch_); }
  Result<bool> test() override { return state_.load() != kRunning; }
  void complete() override {}  // reach() has completed it
  std::optional<Status> poll() override;
  // The stream has reached the end of the batch. Called on a thread of the driver. False: the batch has
  // failed before.
  bool reach();

 private:
  friend class NcclThread;
  NcclThread& thread_;
  std::vector<std::vector<std::byte>> kept_;
  std::shared_ptr<Channel> channel_;  // set before kReached
};

// The state that all communicators of the backend share.
struct Shared {
  NcclApi api;
  const hvd_plugin_host& host;
  hvd_plugin_config config;
  Memory& memory;
  std::shared_ptr<WakeEvent> event;
  std::string lacks{};  // why this rank has no GPU; empty: it has one, and `api` is open
  int device = -1;      // this rank's GPU, known from its first tensor
  int channels = 1;
  std::vector<int32_t> host_of{};  // by rank
  bool is_torus = false;
  double start_seconds = 600;
};

class NcclCommunicator : public BackendCommunicator {
 public:
  NcclCommunicator(Shared& shared, const ProcessSetDescriptor& set);
  ~NcclCommunicator() override;
  Result<bool> is_ready() override;
  // The first batch names this rank's GPU. No CUDA call happens before it. An error on a rank without a
  // GPU.
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  void begin_abort() override;
  void abort(Deadline until) override;
  // A blocking creation of a communicator has no event: the progress thread must poll its time limit.
  bool wakes() const override {
    return shared_.api.comm_init_rank_config != nullptr || !thread_ || !thread_->is_opening();
  }

 private:
  Status choose_device(const hvd_batch& batch);

  Shared& shared_;
  const std::string name_;
  const RankInSet place_;
  const std::optional<Grid> grid_;
  std::shared_ptr<NcclThread> thread_;
};

}  // namespace hvd::ops::nccl
