// Captures of streams into graphs. Any thread may call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {

// The work that streams got under one capture. The double never executes it, because it launches no graphs.
class Capture {
 public:
  enum Mode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

  static std::shared_ptr<Capture> begin(int mode, void* stream);
  // Releases the capture's streams. Returns false if a forbidden call has spoiled the capture.
  bool end();
  void keep(std::function<void()> work);
  void join(void* stream);
  bool is_of_this_thread() const;
  int mode() const { return mode_; }

  // Sets the mode of this thread. Returns the previous mode.
  static int exchange_mode(int mode);
  // Returns whether this thread may make an unsafe call while another thread captures. A forbidden
  // call spoils the captures that forbid it.
  static bool allows_unsafe_call();

 private:
  explicit Capture(int mode);
  bool forbids_unsafe_call() const;

  const int thread_, mode_;
  std::atomic<bool> is_spoiled_{false};
  Mutex mutex_;
  std::vector<void*> streams_ HVD_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> work_ HVD_GUARDED_BY(mutex_);
};

// Defined in double_cuda.cpp.
void set_capture(void* stream, std::shared_ptr<Capture> capture);

}  // namespace hvd::test_double
