// Waits on one thread for all work that a framework's graph has submitted, so that no thread of the
// framework waits. The thread starts with the first work, and lives as long as the process.
#pragma once

#include <condition_variable>
#include <deque>

#include "base/mutex.h"
#include "horovod/horovod.h"

namespace hvd::python {

constexpr size_t kErrorSize = 4096;

// Submitted work. The waiter's thread calls `complete` once and then deletes the work. If `status`
// is not HVD_OK, `error` holds the message, and may be overwritten.
class Awaited {
 public:
  explicit Awaited(hvd_handle handle) : handle_(handle) {}
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual ~Awaited() = default;
  virtual void complete(int status, char* error) = 0;
  hvd_handle handle() const { return handle_; }

 private:
  const hvd_handle handle_;
};

class Waiter {
 public:
  // `wait` and `poll`: functions of the library.
  Waiter(decltype(&::hvd_wait) wait, decltype(&::hvd_poll) poll) : wait_(wait), poll_(poll) {}

  // Takes ownership of the work. Never waits. Any thread.
  void add(Awaited* work);

 private:
  void run();
  void take_arrivals();
  bool complete_others(char* error);

  decltype(&::hvd_wait) const wait_;
  decltype(&::hvd_poll) const poll_;
  Mutex mutex_;
  std::condition_variable changed_;
  bool runs_ HVD_GUARDED_BY(mutex_) = false;
  std::deque<Awaited*> arrived_ HVD_GUARDED_BY(mutex_);
  std::deque<Awaited*> open_;  // only the thread uses it
};

}  // namespace hvd::python
