#include "runtime/submission/submission.h"

#include <utility>

#include "base/text.h"
#include "runtime/submission/group_call_check.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {
namespace {

// Keeps the outputs until the process ends, if a library may use them.
void keep_outputs_in_use(Submission& submission) {
  if (!submission.in_use) return;
  for (Submission::Output& output : submission.outputs) static_cast<void>(output.data.release());
}

}  // namespace

std::string name_text(const Submission& submission) {
  if (submission.name != nullptr) return submission.name->text;
  if (const auto& group = submission.group; group.members != nullptr) {
    const std::string name = cat("group ", group.members->name);
    return group.number == 0 ? name : cat(name, ", call ", group.number);
  }
  if (submission.has_left) return submission.own_name;
  const auto& message = submission.message;
  return message_text(submission.request.op, message.peer, message.tag);
}

std::string operation_text(const Submission& submission) {
  const int32_t op = submission.request.op;
  if (submission.group.members == nullptr) return operation_text(op, name_text(submission));
  return cat(group_op(submission.group.op).name, " '", printable(name_text(submission)), "'");
}

HandleTable::~HandleTable() {
  for (Submission& submission : slots_) keep_outputs_in_use(submission);
}

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
  submission->is_in_use_early = submission->ends_process = false;
  submission->is_ordered = submission->has_left = false;
  submission->event = nullptr;
  submission->done.store(false, std::memory_order_relaxed);
  submission->is_on_stream.store(false, std::memory_order_relaxed);
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

void HandleTable::go_on(std::span<Submission* const> submissions) {
  for (Submission* submission : submissions) submission->is_on_stream.store(true);
}

bool HandleTable::use_early(Submission* submission, bool ends_process) {
  MutexLock lock(mutex_);
  if (submission->finished || has_failed_) return false;
  submission->is_in_use_early = true;
  submission->ends_process |= ends_process;
  return true;
}

Status HandleTable::late_error(const Submission& submission, const Status& cause) {
  return cause.with_context(
      cat(operation_text(submission), " failed after synchronize() had returned"));
}

Status HandleTable::fail_early(Submission* newest, const Status& cause) {
  Status late;
  MutexLock lock(mutex_);
  has_failed_ = true;
  for (Submission* one = newest; one != nullptr; one = one->older) {
    if (std::exchange(one->ends_process, false) && late.ok()) late = late_error(*one, cause);
  }
  return late;
}

Status HandleTable::finish(std::span<Submission* const> submissions) {
  Status late;
  MutexLock lock(mutex_);
  for (Submission* submission : submissions) {
    if (submission->is_in_use_early && !submission->status.ok()) {
      submission->status = late_error(*submission, submission->status);
      if (submission->ends_process && late.ok()) late = submission->status;
    }
    submission->finished = true;
    submission->done.store(true, std::memory_order_seq_cst);
    submission->is_on_stream.store(true, std::memory_order_seq_cst);
    if (!submission->claimed && submission->users == 0) recycle(submission);
  }
  return late;
}

void HandleTable::recycle(Submission* submission) {
  keep_outputs_in_use(*submission);
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
