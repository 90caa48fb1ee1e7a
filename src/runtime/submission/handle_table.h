// Maps handles to submissions. A handle is a slot's index and its incarnation, which detects stale
// handles. Runtime owns it. Any thread.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "horovod/horovod.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

class HandleTable {
 public:
  // Incarnations begin at `first`, so that handles of an earlier runtime are not taken for ours.
  explicit HandleTable(uint32_t first) : first_(first) {}

  // A submission that is used by nobody, claimed by the user.
  Submission* claim(hvd_handle* handle);
  // Takes back a claim on what was never submitted.
  void unclaim(Submission* submission);

  // Pins a submission while it is used; nullptr when there is no such handle.
  Submission* pin(hvd_handle handle);
  void unpin(Submission* submission);

  // Ends the user's claim; false when there is no such handle.
  bool release(hvd_handle handle);
  // The runtime is done with these: `done` becomes true, and released ones are used again.
  void finish(std::span<Submission* const> submissions);

 private:
  Submission* find(hvd_handle handle) HVD_REQUIRES(mutex_);
  void recycle(Submission* submission) HVD_REQUIRES(mutex_);

  const uint32_t first_;
  Mutex mutex_;
  std::deque<Submission> slots_ HVD_GUARDED_BY(mutex_);  // stable addresses
  std::vector<Submission*> free_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
