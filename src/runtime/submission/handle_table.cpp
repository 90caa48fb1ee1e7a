#include "runtime/submission/handle_table.h"

namespace hvd::runtime {

Submission* HandleTable::claim(hvd_handle* handle) {
  MutexLock lock(mutex_);
  Submission* submission = nullptr;
  if (free_.empty()) {
    submission = &slots_.emplace_back();
    submission->index = static_cast<uint32_t>(slots_.size() - 1);
    submission->incarnation = first_;
  } else {
    submission = free_.back();
    free_.pop_back();
  }
  submission->claimed = true;
  submission->finished = false;
  submission->users = 0;
  submission->is_trial = false;
  submission->is_started.store(true, std::memory_order_relaxed);
  submission->done.store(false, std::memory_order_relaxed);
  *handle = (static_cast<uint64_t>(submission->incarnation) << 32) | (submission->index + 1);
  return submission;
}

void HandleTable::unclaim(Submission* submission) {
  MutexLock lock(mutex_);
  submission->claimed = false;
  recycle(submission);
}

Submission* HandleTable::find(hvd_handle handle) {
  const uint64_t index = (handle & 0xffffffffU) - 1;
  if (index >= slots_.size()) return nullptr;
  Submission& submission = slots_[index];
  if (!submission.claimed || submission.incarnation != handle >> 32) return nullptr;
  return &submission;
}

Submission* HandleTable::pin(hvd_handle handle) {
  MutexLock lock(mutex_);
  Submission* submission = find(handle);
  if (submission != nullptr) ++submission->users;
  return submission;
}

void HandleTable::unpin(Submission* submission) {
  MutexLock lock(mutex_);
  --submission->users;
  if (!submission->claimed && submission->finished && submission->users == 0) recycle(submission);
}

bool HandleTable::release(hvd_handle handle, bool* in_use) {
  MutexLock lock(mutex_);
  Submission* submission = find(handle);
  if (submission == nullptr) return false;
  if (in_use != nullptr) *in_use = submission->finished && submission->in_use;
  submission->claimed = false;
  if (submission->finished && submission->users == 0) recycle(submission);
  return true;
}

void HandleTable::finish(std::span<Submission* const> submissions) {
  MutexLock lock(mutex_);
  for (Submission* submission : submissions) {
    submission->finished = true;
    submission->done.store(true, std::memory_order_seq_cst);
    if (!submission->claimed && submission->users == 0) recycle(submission);
  }
}

void HandleTable::recycle(Submission* submission) {
  submission->outputs.clear();
  submission->received_splits.clear();
  submission->status = {};
  submission->last_joined_rank = -1;
  submission->registered = -1;
  submission->in_use = false;
  submission->name = nullptr;
  submission->group.members.reset();
  ++submission->incarnation;
  free_.push_back(submission);
}

}  // namespace hvd::runtime
