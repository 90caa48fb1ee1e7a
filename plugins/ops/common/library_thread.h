// The thread on which a backend calls a library that blocks, or that must be called from one thread.
// Runs calls in the order in which they were added. Several batches may run at a time.
//
// A backend derives a class from LibraryThread. The thread shares ownership of the object: if the library
// hangs, the thread may outlive the backend.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "horovod/plugin.h"
#include "ops/common/backend.h"

namespace hvd::ops {

// Blocks SIGPIPE in the current thread, and in threads started by it, during its lifetime. A library may write to the
// connection of a member that has ended: the write then fails with EPIPE, and the signal does not end the process.
class BlockedSigpipe {
 public:
  BlockedSigpipe() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~BlockedSigpipe() {
    if (::sigismember(&before_, SIGPIPE) != 0) return;
    // A signal that arrived meanwhile is pending for this thread: take it before unblocking.
    const timespec at_once{};
    while (::sigtimedwait(&sigpipe_, nullptr, &at_once) == SIGPIPE) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSigpipe(const BlockedSigpipe&) = delete;
  BlockedSigpipe& operator=(const BlockedSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

// The eventfd by which a LibraryThread wakes the progress thread. The backend and the library thread
// share it, since the thread may outlive the backend if the library hangs.
class WakeEvent {
 public:
  static Result<std::shared_ptr<WakeEvent>> make();
  explicit WakeEvent(UniqueFd fd) : fd_(std::move(fd)) {}
  // Wakes the progress thread. Any thread.
  void ring() const;
  void clear() const;
  int fd() const { return fd_.get(); }

 private:
  const UniqueFd fd_;
};

// While this object lives, the event wakes the progress thread.
class WakeWatch {
 public:
  WakeWatch(const hvd_plugin_host& host, std::shared_ptr<WakeEvent> event);
  ~WakeWatch() { host_.unwatch(host_.host, event_->fd()); }
  WakeWatch(const WakeWatch&) = delete;
  WakeWatch& operator=(const WakeWatch&) = delete;

 private:
  const hvd_plugin_host& host_;
  const std::shared_ptr<WakeEvent> event_;
};

// A batch that the library thread runs and the progress thread polls. The library thread calls all
// functions except poll().
class QueuedBatch : public RunningBatch {
 public:
  explicit QueuedBatch(const hvd_batch& batch) : batch_(batch) {}
  // Starts the batch, or runs it to its end. An error of start or test fails the backend.
  virtual Status start() = 0;
  // Returns whether the library has finished the batch.
  virtual Result<bool> test() { return true; }
  // Writes the outputs, after test has returned true.
  virtual void finish() {}
  // Reports the end to the progress thread.
  void end(const Status& status);
  std::optional<Status> poll() override;

 protected:
  const hvd_batch& batch_;  // not used after the batch has ended

 private:
  std::atomic<bool> is_over_{false};
  Status status_;  // written before is_over_
};

class LibraryThread : public std::enable_shared_from_this<LibraryThread> {
 public:
  // Returns the default deadline of stop(): a library that hangs must not prevent the process's exit.
  static Deadline end_limit() { return Deadline::after_seconds(20); }

  // `name`: name of the thread. `title`: first word of the library's errors.
  LibraryThread(const char* name, const char* title, std::shared_ptr<WakeEvent> event)
      : name_(name), title_(title), event_(std::move(event)) {}
  virtual ~LibraryThread() = default;
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

  void start();
  void add(std::shared_ptr<QueuedBatch> batch) { give({std::move(batch), nullptr}); }
  void call(std::function<Status()> call) { give({nullptr, std::move(call)}); }
  // Makes the thread test the running batches soon. Any thread.
  void wake();
  // Waits until all calls added so far have run.
  void drain();
  // Makes the thread start no further call, and interrupts a call in progress. Never waits.
  void begin_end();
  // Like begin_end(), and waits until no call that uses the memory of a batch is in progress.
  void close();
  // Ends the thread. If the thread has not ended by the deadline, returns false: the thread then continues
  // without access to the memory of batches.
  bool stop(Deadline until = end_limit());

 protected:
  using Batches = std::vector<std::shared_ptr<QueuedBatch>>;
  // Called first, on the thread; no batch runs before the call returns.
  virtual Status open_library() { return {}; }
  // The thread calls look() while batches run. Returns the error that the library has reported, if any.
  virtual Status look() { return {}; }
  // Returns the time between two calls of test() while batches run; 0: the thread polls.
  virtual std::chrono::milliseconds pace() const { return std::chrono::milliseconds(0); }
  // Ends calls of the library that wait for other members. Any thread.
  virtual void interrupt() {}
  // The thread calls close_library last, with the batches that are incomplete after a failure or an early
  // end. The errors of these batches are reported already, but the library may access their memory until the call
  // returns.
  virtual void close_library(bool /*failed*/, Batches) {}

  // Sleeps for `time`, on the thread. Returns false if the thread must end.
  bool pause(std::chrono::microseconds time);
  const std::shared_ptr<WakeEvent>& event() const { return event_; }
  // Returns the Status of body(), or converts an exception of the library.
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
  Batches running_;  // batches in progress; used only by the thread

  Mutex memory_;  // held while outputs are written
  // stop() has abandoned the thread.
  bool memory_is_gone_ HVD_GUARDED_BY(memory_) = false;

  Mutex mutex_;
  std::condition_variable changed_;  // signals changes of members that mutex_ guards
  std::deque<Order> orders_ HVD_GUARDED_BY(mutex_);
  Status failure_ HVD_GUARDED_BY(mutex_);
  bool woken_ HVD_GUARDED_BY(mutex_) = false;
  bool busy_ HVD_GUARDED_BY(mutex_) = false;  // the thread runs calls or tests batches
  bool closing_ HVD_GUARDED_BY(mutex_) = false;
  bool ended_ HVD_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // used only by the thread that owns the backend
};

}  // namespace hvd::ops
