// Captures of streams into graphs. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {

// The work that streams got under one capture. Nothing runs it: the double launches no graphs.
class Capture {
 public:
  enum Mode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

  static std::shared_ptr<Capture> begin(int mode, void* stream);
  // The streams that belong to it are free again. False: a forbidden call has spoiled the capture.
  bool end();
  void keep(std::function<void()> work);
  void join(void* stream);
  bool is_of_this_thread() const;
  int mode() const { return mode_; }

  // The mode of this thread. Returns the last one.
  static int exchange_mode(int mode);
  // Whether this thread may call what is unsafe while another thread captures. If not, the call spoils the
  // captures that forbid it.
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
