// The thread of a process set: makes its channels, puts its batches on them in their order, and looks
// whether they go wrong. All calls of NCCL and of the CUDA runtime happen here, so that whoever makes
// progress (a thread of the user's, often) neither waits in them nor finds another device current.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "horovod/plugin.h"
#include "ops/common/backend.h"
#include "ops/nccl/collectives.h"
#include "ops/nccl/grid.h"
#include "ops/nccl/memory.h"

namespace hvd::ops::nccl {

// A batch in the queue of the set's thread, or on its stream. The one that changes `state` from
// kRunning ends the batch: the stream, which has reached the end of the batch, or the thread, which
// fails it. Aborted streams reach their end too.
struct NcclQueuedBatch {
  enum State { kRunning, kReached, kFailing, kFailed };
  explicit NcclQueuedBatch(const hvd_batch& of) : batch(&of) {}
  const hvd_batch* const batch;  // not touched once it is on the stream
  std::vector<std::vector<std::byte>> kept;
  std::shared_ptr<Channel> channel;  // before kReached
  Status status;                     // before kFailed
  std::atomic<int> state{kRunning};
};

// What a process set's thread has to know; the same on all members, but for the index.
struct WorkerPlan {
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
  std::shared_ptr<UniqueFd> event;  // readable when a batch is over
};

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  static std::shared_ptr<Worker> start(WorkerPlan plan);
  explicit Worker(WorkerPlan plan) : plan_(std::move(plan)) {}

  void add(std::shared_ptr<NcclQueuedBatch> queued);
  // What has reached the end of its stream, and its channel is broken: it fails in a while.
  void doubt(const std::shared_ptr<NcclQueuedBatch>& queued);
  // Ends the thread, and what runs if `abort`; nothing touches the memory of batches afterwards.
  void stop(bool abort);
  // Not ok when a library that waits while it makes a communicator waits too long.
  Status judge();
  bool is_opening() const { return opening_.load(); }

 private:
  void work();
  Status open_channels();
  Result<abi::UniqueId> exchange_id(const std::string& key, int index, int size,
                                    const Deadline& deadline);
  bool goes_by_hosts(const hvd_batch& batch) const;
  Status add_sub_communicators(Channel& channel, size_t number);
  Status run(const std::shared_ptr<NcclQueuedBatch>& queued);
  Status look();
  void fail(std::unique_lock<std::mutex>& lock, const Status& cause);
  void end_all();
  bool pause();
  void wake() const;

  const WorkerPlan plan_;
  std::vector<std::shared_ptr<Channel>> channels_;  // of the thread
  void* done_ = nullptr;                            // event; of the thread
  void* notices_ = nullptr;                         // stream; of the thread
  std::atomic<bool> opening_{true};
  const Deadline opened_by_ = Deadline::after_seconds(plan_.start_seconds);

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<NcclQueuedBatch>> waiting_, running_;
  Status failure_;
  bool closing_ = false, aborting_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace hvd::ops::nccl
