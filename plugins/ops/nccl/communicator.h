// A process set under NCCL: a thread makes its channels, puts its batches on them in their order, and looks
// whether they go wrong. All calls of NCCL and of the CUDA runtime happen there, so that the thread that makes
// progress (a thread of the user's, often) neither waits in them nor finds another device current.
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

// What a process set's thread has to know; the same on all members, but for the index.
struct ThreadPlan {
  Api api;  // its own: a thread that hangs in the driver may outlive the backend
  Memory& memory;
  const hvd_plugin_host& host;
  std::string name;  // of the rendezvous in the store
  Place place;
  std::optional<Grid> grid;
  bool is_torus = false;  // also where the tuning of a batch does not ask for it
  int device = 0;
  int channels = 1;
  double start_seconds = 600;
  std::shared_ptr<WakeEvent> event;
};

class NcclBatch;

class NcclThread : public LibraryThread {
 public:
  explicit NcclThread(ThreadPlan plan)
      : LibraryThread("hvd-nccl", "NCCL", plan.event), plan_(std::move(plan)) {}

  // On the thread.
  Status enqueue(NcclBatch& batch, const hvd_batch& what);
  // Ends the thread, and what runs if `abort`; nothing touches the memory of batches afterwards.
  void end(bool abort);
  // Not ok when a library that waits while it makes a communicator waits too long.
  Status judge() const;

 protected:
  Status open_library() override;
  Status look() override;
  std::chrono::milliseconds pace() const override { return std::chrono::milliseconds(100); }
  void abort_library() override;
  void close_library(bool failed, Batches running) override;

 private:
  Result<abi::UniqueId> exchange_id(const std::string& key, int index, int size,
                                    const Deadline& deadline);
  bool goes_by_hosts(const hvd_batch& batch) const;
  Status add_sub_communicators(Channel& channel, size_t number);
  bool pause();

  const ThreadPlan plan_;
  std::vector<std::shared_ptr<Channel>> channels_;  // of the thread
  void* done_ = nullptr;                            // event; of the thread
  void* notices_ = nullptr;                         // stream; of the thread
  const Deadline opened_by_ = Deadline::after_seconds(plan_.start_seconds);
  std::atomic<bool> aborting_{false};
};

// The stream, which has reached the end of the batch, ends it, or the thread, which fails it. Aborted
// streams reach their end too.
class NcclBatch : public QueuedBatch, public std::enable_shared_from_this<NcclBatch> {
 public:
  NcclBatch(NcclThread& thread, const hvd_batch& batch) : QueuedBatch(batch), thread_(thread) {}
  Status start() override { return thread_.enqueue(*this, batch_); }
  Result<bool> test() override { return state_.load() != kRunning; }
  void complete() override {}  // the stream has done it
  std::optional<Status> poll() override;
  // From a thread of the driver's. False when it was failed before.
  bool reach();

 private:
  friend class NcclThread;
  NcclThread& thread_;
  std::vector<std::vector<std::byte>> kept_;
  std::shared_ptr<Channel> channel_;  // before kReached
};

// What the sets of a backend share.
struct Shared {
  Api api;
  const hvd_plugin_host& host;
  hvd_plugin_config config;
  Memory& memory;
  std::shared_ptr<WakeEvent> event;
  int device = -1;  // of this rank, once one of its tensors has told
  int channels = 1;
  std::vector<int32_t> host_of{};  // by rank
  bool is_torus = false;
  double start_seconds = 600;
};

class NcclCommunicator : public BackendCommunicator {
 public:
  NcclCommunicator(Shared& shared, const ProcessSet& set);
  ~NcclCommunicator() override;
  Result<bool> is_ready() override;
  // The first batch tells which GPU it is: nothing of CUDA's is touched before.
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  void abort() override;
  // A library that waits while it makes a communicator is watched by asking again.
  bool wakes() const override {
    return shared_.api.comm_init_rank_config != nullptr || !thread_ || !thread_->is_opening();
  }

 private:
  Status choose_device(const hvd_batch& batch);

  Shared& shared_;
  const std::string name_;
  const Place place_;
  const std::optional<Grid> grid_;
  std::shared_ptr<NcclThread> thread_;
};

}  // namespace hvd::ops::nccl
