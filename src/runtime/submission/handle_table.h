// Maps handles to submissions. A handle is a slot's index and its incarnation, which detects stale
// handles. Runtime owns the table. Any thread.
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
  // Incarnations begin at `first`, so that handles of an earlier runtime are invalid.
  explicit HandleTable(uint32_t first) : first_(first) {}
  ~HandleTable();

  // Returns a free submission, and its handle for the user.
  Submission* claim(hvd_handle* handle);
  // Frees a submission that was claimed but not submitted.
  void unclaim(Submission* submission);

  // Finds a submission and keeps it until unpin(); nullptr if the handle does not exist.
  Submission* pin(hvd_handle handle);
  void unpin(Submission* submission);

  // Releases the user's handle. Returns false if the handle does not exist. Sets *in_use, unless
  // `in_use` is null, to true if a library may use the tensors until the process ends.
  bool release(hvd_handle handle, bool* in_use = nullptr);
  // Marks submissions as being on a stream.
  void go_on(std::span<Submission* const> submissions);
  // Records that the user uses the result of a submission on a stream. Returns false if the submission is done.
  bool use_early(Submission* submission, bool ends_process);
  // Prevents further early use of results, because `newest` and all older submissions will fail.
  // Returns the error of a submission whose result is in use and whose failure ends the process, or ok.
  Status fail_early(Submission* newest, const Status& cause);
  // Marks submissions as done, and frees the ones that the user has released. Returns the error of a
  // submission whose result is in use and whose failure ends the process, or ok.
  Status finish(std::span<Submission* const> submissions);

 private:
  static Status late_error(const Submission& submission, const Status& cause);
  Submission* find(hvd_handle handle) HVD_REQUIRES(mutex_);
  void recycle(Submission* submission) HVD_REQUIRES(mutex_);

  const uint32_t first_;
  Mutex mutex_;
  std::deque<Submission> slots_ HVD_GUARDED_BY(mutex_);  // stable addresses
  std::vector<Submission*> free_ HVD_GUARDED_BY(mutex_);
  bool has_failed_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace hvd::runtime
