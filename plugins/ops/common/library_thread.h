// The thread on which a backend calls a library that blocks, or that must be called from one thread.
// Runs orders in the order in which they were added. Several batches may run at a time.
//
// A backend derives a class from it. The thread shares ownership of the object: when the library hangs,
// the thread may outlive the backend.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "ops/common/backend.h"
#include "ops/common/wake_event.h"

namespace hvd::ops {

// A batch that the library thread runs and the progress thread polls. The library thread calls all
// functions but poll. The caller that changes `state_` from kRunning ends the batch.
class QueuedBatch : public RunningBatch {
 public:
  explicit QueuedBatch(const hvd_batch& batch) : batch_(batch) {}
  // Starts the batch, or runs it to its end. An error of start or test fails the backend.
  virtual Status start() = 0;
  // Whether the library has finished the batch.
  virtual Result<bool> test() { return true; }
  // Writes the outputs, after test has returned true.
  virtual void finish() {}
  // Reports the end to the progress thread.
  virtual void complete() { end({}); }
  // Reserves the batch for a failure, before the library is aborted. False: the batch was over before.
  bool claim();
  // Undoes claim: the batch runs again.
  void reopen() { state_.store(kRunning); }
  void end(const Status& status);
  bool is_over() const { return state_.load(std::memory_order_acquire) == kOver; }
  std::optional<Status> poll() override;

 protected:
  enum State { kRunning, kReached, kClaimed, kOver };
  const hvd_batch& batch_;  // not touched once the batch is over
  std::atomic<int> state_{kRunning};

 private:
  Status status_;  // written before kOver
};

class LibraryThread : public std::enable_shared_from_this<LibraryThread> {
 public:
  // The time limit of stop: a library that hangs must not keep the process from its exit.
  static Deadline end_limit() { return Deadline::after_seconds(20); }

  // `name`: of the thread. `title`: the first word of the library's errors.
  LibraryThread(const char* name, const char* title, std::shared_ptr<WakeEvent> event)
      : name_(name), title_(title), event_(std::move(event)) {}
  virtual ~LibraryThread() = default;
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

  void start();
  void add(std::shared_ptr<QueuedBatch> batch) { give({std::move(batch), nullptr, false}); }
  void call(std::function<Status()> call) { give({nullptr, std::move(call), false}); }
  // Watches a batch again whose end the library reported before it failed.
  void resume(std::shared_ptr<QueuedBatch> batch);
  // Waits until all orders so far have run.
  void drain();
  // Starts no further order, and interrupts a call in progress. Never waits.
  void begin_end();
  // The same; when close returns, no call that uses the memory of a batch is in progress.
  void close();
  // Ends the thread. If it has not ended by the deadline, returns false: the thread then continues
  // without access to the memory of batches.
  bool stop(Deadline until = end_limit());
  // Whether open_library still runs.
  bool is_opening() const { return opening_.load(); }

 protected:
  using Batches = std::vector<std::shared_ptr<QueuedBatch>>;
  // Called first, on the thread. Batches wait until it returns.
  virtual Status open_library() { return {}; }
  // Called while batches run. Returns an error that the library itself reports.
  virtual Status look() { return {}; }
  // The time between two calls of test() while batches run; 0: the thread polls.
  virtual std::chrono::milliseconds pace() const { return std::chrono::milliseconds(0); }
  // Ends calls of the library that wait for other members. Called on any thread.
  virtual void interrupt() {}
  // Called after a failure, before batches end with it. Afterwards the library must not touch their
  // memory.
  virtual void abort_library() {}
  // Called last, with the batches that are not over after a failure or an early end.
  virtual void close_library(bool /*failed*/, Batches) {}

  // Sleeps on the thread. Returns false when the thread has to end.
  bool pause(std::chrono::milliseconds time);
  const std::shared_ptr<WakeEvent>& event() const { return event_; }
  // Returns the Status of body(), or turns an exception of the library into one.
  template <typename Body>
  Status guarded(Body&& body) const {
    try {
      return body();
    } catch (const std::exception& failure) {
      return error_of(failure.what());
    }
  }

 private:
  struct Order {
    std::shared_ptr<QueuedBatch> batch;
    std::function<Status()> call;
    bool is_started = false;
  };
  void give(Order order);
  Status error_of(std::string_view thrown) const;
  void work();
  Status turn(const Order& order, bool* moved);
  Status advance(bool* moved);
  void fail();

  const char* const name_;
  const char* const title_;
  const std::shared_ptr<WakeEvent> event_;
  Batches running_;  // batches under way; used by the thread only
  std::atomic<bool> opening_{true};

  Mutex memory_;  // held while outputs are written
  // stop() has given the thread up
  bool memory_is_gone_ HVD_GUARDED_BY(memory_) = false;

  Mutex mutex_;
  std::condition_variable changed_;  // signals changes of what mutex_ guards
  std::deque<Order> orders_ HVD_GUARDED_BY(mutex_);
  Status failure_ HVD_GUARDED_BY(mutex_);
  bool busy_ HVD_GUARDED_BY(mutex_) = false;  // in a turn
  bool closing_ HVD_GUARDED_BY(mutex_) = false;
  bool ended_ HVD_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // used by the backend's thread only
};

}  // namespace hvd::ops
