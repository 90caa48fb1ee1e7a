// A backend: an op plugin over a third-party library, with the batches of each process set in their
// order. The thread that makes progress calls, one thread at a time.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/common/op_plugin.h"

namespace hvd::ops {

// A batch that was started. Destroyed when it is over, or when the backend is closed after a failure:
// until then the library may still write to its memory.
class RunningBatch {
 public:
  virtual ~RunningBatch() = default;
  // Nothing while it runs. Never waits.
  virtual std::optional<Status> poll() = 0;
};

// The library's communicator of a process set.
class BackendCommunicator {
 public:
  virtual ~BackendCommunicator() = default;
  // Whether batches can be started; a failure fails the whole backend.
  virtual Result<bool> is_ready() { return true; }
  virtual Result<std::unique_ptr<RunningBatch>> start(const hvd_batch& batch) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual int32_t supports(const hvd_batch& batch) = 0;
  virtual Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      int32_t id, std::vector<int32_t> members) = 0;
  // When it returns, nothing touches the memory of a batch.
  virtual void on_abort() {}
  // Called before the communicator of a set is destroyed.
  virtual void on_drop(int32_t) {}
  virtual const char* activity(const hvd_batch&) { return nullptr; }
  // Whether the progress thread may sleep while batches run: something wakes it.
  virtual bool wakes() const { return false; }

  int run(const hvd_batch& batch, Done done, void* argument);
  bool poll();
  int new_set(int32_t id, std::vector<int32_t> members);
  int drop_set(int32_t id);
  void abort(const Status& cause);
  bool may_sleep() const { return running_ == 0 || wakes(); }

 protected:
  // Derived destructors call it first: communicators use what these destructors destroy.
  void drop_all() {
    sets_.clear();
    lost_.clear();
  }
  bool failed() const { return !failure_.ok(); }

 private:
  struct Entry {
    const hvd_batch* batch;
    Done done;
    void* argument;
    std::unique_ptr<RunningBatch> running;
  };
  struct Set {
    std::unique_ptr<BackendCommunicator> communicator;
    std::deque<Entry> entries;
  };
  bool advance(Set& set);
  void fail_all();

  std::map<int32_t, Set> sets_;
  std::vector<std::unique_ptr<RunningBatch>> lost_;
  Status failure_;
  size_t running_ = 0;
};

template <typename Plugin>
using BackendRecord = OpRecord<Plugin, Backend>;

}  // namespace hvd::ops
