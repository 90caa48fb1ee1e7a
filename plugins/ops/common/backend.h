// The base class of a backend, an op plugin over a third-party library. Owns the communicators, and the
// queue of batches of each process set. The runtime calls the backend through OpRecord, on the progress thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ops/common/batch_queue.h"
#include "ops/common/op_plugin.h"

namespace hvd::ops {

// The times between which a device executed a batch (hvd_batch.ran).
struct DeviceTimes {
  Clock::time_point began, ended;
};

// A batch that the library runs. The backend releases the object when the batch is over; after a failure, when the
// backend is closed, because the library may still write to the batch's memory until then.
class RunningBatch {
 public:
  virtual ~RunningBatch() = default;
  // Returns nullopt while the batch runs, else its result. Never waits.
  virtual std::optional<Status> poll() = 0;
  // Returns whether the library may still use the tensors of a failed batch. True only if the batch
  // allows this (hvd_batch.keeps_tensors).
  virtual bool uses_tensors() const { return false; }
  // Returns the event of a batch on a stream (hvd_batch.on_stream); nullptr if the batch is not on a stream yet.
  virtual void* event() const { return nullptr; }
  // Returns nullopt if the times are unknown. The backend calls times() after poll() has returned success.
  virtual std::optional<DeviceTimes> times() const { return {}; }
};

// The library's communicator of a process set.
class BackendCommunicator {
 public:
  virtual ~BackendCommunicator() = default;
  // Returns whether batches can start. An error fails the complete backend.
  virtual Result<bool> is_ready() { return true; }
  virtual Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) = 0;
  // Begins an abort. The backend calls begin_abort() of all communicators before abort() of the first. Never waits.
  virtual void begin_abort() {}
  // Ends all batches. Afterwards the library does not use the tensors of its batches, unless uses_tensors() is true.
  // Waits until the deadline at the latest.
  virtual void abort(Deadline) {}
  // Returns whether the progress thread may sleep while batches run: an event wakes the thread when a batch ends.
  virtual bool wakes() const { return false; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int32_t supports(const hvd_batch& batch) = 0;
  virtual Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) = 0;
  // Called after abort() of all communicators.
  virtual void on_abort() {}
  virtual const char* activity(const hvd_batch&) { return nullptr; }

  int run(const hvd_batch& batch, Done done, void* argument);
  bool poll();
  int new_set(int32_t id, std::vector<int32_t> members);
  int drop_set(int32_t id) { return sets_.drop(id); }
  void abort(const Status& cause);
  bool may_sleep();

 protected:
  // Derived destructors must call drop_all() first: communicators use members that these destructors destroy.
  void drop_all() {
    sets_.drop_all();
    lost_.clear();
  }
  bool failed() const { return !failure_.ok(); }

 private:
  struct Entry : QueueEntry {
    std::shared_ptr<RunningBatch> running;
    bool is_on_stream = false;  // reported to the runtime
  };
  struct Set {
    std::unique_ptr<BackendCommunicator> communicator;
    std::deque<Entry> entries;
  };
  bool advance(Set& set);
  bool note_streams(Set& set);
  static void report_times(const Entry& entry);
  void fail();
  void fail_all();

  BatchQueue<Set> sets_;
  Incarnations incarnations_;
  std::vector<std::shared_ptr<RunningBatch>> lost_;
  Status failure_;
  bool is_reported_ = false;  // the runtime knows the failure, and aborts
};

template <typename Plugin>
using BackendRecord = OpRecord<Plugin, Backend>;

}  // namespace hvd::ops
