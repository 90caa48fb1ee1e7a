// The thread on which a backend calls a library that blocks, or that belongs to one thread. Orders run in
// the order in which they were given; several batches may be under way at a time.
//
// A backend derives from it, and the thread owns the object too: a library that hangs may keep the thread
// beyond the backend.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "ops/common/backend.h"
#include "ops/common/wake_event.h"

namespace hvd::ops {

// A batch that the library's thread runs, and that the thread that makes progress asks for its end. The
// functions are the library thread's, but for poll. Whoever changes `state` from kRunning ends the batch.
class QueuedBatch : public RunningBatch {
 public:
  explicit QueuedBatch(const hvd_batch& batch) : batch_(batch) {}
  // Starts it, or runs it to its end. Not ok, in any of these, is the end of the backend.
  virtual Status start() = 0;
  // Whether the library is done with it.
  virtual Result<bool> test() { return true; }
  // After that: writes the outputs.
  virtual void finish() {}
  // Reports its end to the thread that makes progress.
  virtual void complete() { end({}); }
  // Reports a failure, unless it was over before. `claim` comes before the library is aborted.
  bool claim();
  // It is under way again.
  void reopen() { state_.store(kRunning); }
  void end(const Status& status);
  bool is_over() const { return state_.load(std::memory_order_acquire) == kOver; }
  std::optional<Status> poll() override;

 protected:
  enum State { kRunning, kReached, kClaimed, kOver };
  const hvd_batch& batch_;  // not touched once the batch is over
  std::atomic<int> state_{kRunning};

 private:
  Status status_;  // before kOver
};

class LibraryThread : public std::enable_shared_from_this<LibraryThread> {
 public:
  using Seconds = std::chrono::seconds;
  // A library that hangs must not keep the process.
  static constexpr Seconds kEnd{20};
  // For a library that has a timeout of its own.
  static constexpr Seconds kNoLimit = std::chrono::hours(24 * 365);

  // `name` of the thread; `title` begins the errors of the library.
  LibraryThread(const char* name, const char* title, std::shared_ptr<WakeEvent> event)
      : name_(name), title_(title), event_(std::move(event)) {}
  virtual ~LibraryThread() = default;
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

  void start();
  void add(std::shared_ptr<QueuedBatch> batch) { give({std::move(batch), nullptr, false}); }
  void call(std::function<Status()> call) { give({nullptr, std::move(call), false}); }
  // Watches a batch again that has reached its end in a library that has failed.
  void resume(std::shared_ptr<QueuedBatch> batch);
  // Waits until all orders so far have run.
  void drain();
  // No order begins after it. A call in progress has two seconds to end before it is interrupted. When
  // close returns, no call with the memory of a batch is in progress.
  void close();
  // Ends the thread. Where that takes longer than `limit`, the thread stays behind without a right to
  // the memory of batches, and the answer is false.
  bool stop(Seconds limit = kEnd);
  // Whether open_library still runs.
  bool is_opening() const { return opening_.load(); }

 protected:
  using Batches = std::vector<std::shared_ptr<QueuedBatch>>;
  // Comes first; batches wait for it.
  virtual Status open_library() { return {}; }
  // While batches are under way: what the library itself reports.
  virtual Status look() { return {}; }
  // How long the thread may sleep while batches are under way; 0: it polls.
  virtual std::chrono::milliseconds pace() const { return std::chrono::milliseconds(0); }
  // Any thread: calls that wait for other members end now.
  virtual void interrupt() {}
  // After a failure, before batches end with it: nothing touches their memory any more.
  virtual void abort_library() {}
  // Comes last. Batches that are not over, after a failure or at an early end, come along.
  virtual void close_library(bool /*failed*/, Batches) {}

  // Sleeps on the thread; false when the thread is to end.
  bool pause(std::chrono::milliseconds time);
  const std::shared_ptr<WakeEvent>& event() const { return event_; }
  // The Status of body(), or what the library throws there.
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
  void fail(std::unique_lock<std::mutex>& lock);

  const char* const name_;
  const char* const title_;
  const std::shared_ptr<WakeEvent> event_;
  Batches running_;  // of the thread
  std::atomic<bool> opening_{true};

  std::mutex memory_;            // held while outputs are written
  bool memory_is_gone_ = false;  // guarded by memory_: stop() has given the thread up

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Order> orders_;
  Status failure_;
  bool busy_ = false;  // in a turn
  bool closing_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace hvd::ops
