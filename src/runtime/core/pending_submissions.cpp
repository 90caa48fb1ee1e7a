#include "runtime/core/pending_submissions.h"

#include <utility>

#include "base/text.h"

namespace hvd::runtime {

PendingSubmissions::Wake PendingSubmissions::submit(Submission* submission) {
  pending_.fetch_add(1);
  const uint64_t activity = activity_.fetch_add(1) + 1;
  const bool whole = wakes_early_ && activity == burst_target_.load(std::memory_order_relaxed);
  queue_.push(submission);
  if (whole) return Wake::kFull;
  // If a window is open, the progress thread wakes by itself when the window ends.
  return window_open_.load() ? Wake::kNone : Wake::kDriver;
}

std::string name_text(const LastSubmission& last) {
  if (last.group != nullptr) return cat("group ", last.group->name);
  const bool is_message = traits_of(last.op).is_point_to_point;
  return is_message ? message_text(last.op, last.peer, last.tag) : last.name;
}

void PendingSubmissions::admit(Submission* submission, Clock::time_point now) {
  submission->since = now;
  submission->stall_reports = 0;
  submission->older = newest_;
  submission->newer = nullptr;
  if (newest_ != nullptr) newest_->newer = submission;
  newest_ = submission;
  submission->accepted = submission->planned = false;
  submission->is_held = false;
  submission->announced_id = 0;
}

void PendingSubmissions::admit_direct(Submission* submission) {
  const Clock::time_point now = Clock::now();
  admit(submission, now);
  last_.when = now;
  last_.op = submission->request.op;
  last_.peer = submission->message.peer;
  last_.tag = submission->message.tag;
  last_.group = submission->group.members;
  last_.program = submission->program;
}

void PendingSubmissions::start(Submission* submission) {
  submission->is_started.store(true);
  has_started_.store(true);
}

bool PendingSubmissions::collect(const IsRefused& is_refused, std::vector<Submission*>* refused) {
  Submission* next = queue_.take_all();
  const bool has_started = has_started_.load(std::memory_order_relaxed);
  if (next == nullptr && !has_started) return false;
  // Place started submissions first: each was started before the queued ones were submitted.
  bool moved = has_started && place_started(is_refused, refused);
  const Clock::time_point now = Clock::now();
  while (next != nullptr) {
    Submission* submission = std::exchange(next, next->next);
    if (next == nullptr) {
      last_.when = now;
      last_.name.assign(submission->name->text);
      last_.op = submission->request.op;
      last_.group.reset();
      last_.program = submission->program;
    }
    admit(submission, now);
    ++unfinished_;
    place(submission, is_refused, refused);
    moved = true;
  }
  if (!collected_.empty() && window_end_ == Clock::time_point::max()) {
    window_end_ = now + window_;
    window_open_.store(true);
  }
  return moved;
}

void PendingSubmissions::place(Submission* submission, const IsRefused& is_refused,
                               std::vector<Submission*>* refused) {
  if (is_refused != nullptr && is_refused(*submission)) {
    refused->push_back(submission);
    return;
  }
  if (!submission->is_started.load()) {
    submission->is_held = true;
    held_.push_back(submission);
    return;
  }
  collected_.push_back(submission);
  collected_bytes_ += submission->bytes;
  ++burst_;
}

bool PendingSubmissions::place_started(const IsRefused& is_refused,
                                       std::vector<Submission*>* refused) {
  // Clear the flag first, so that the next call finds a submission that is started meanwhile.
  has_started_.store(false);
  bool moved = false;
  std::erase_if(held_, [&](Submission* submission) {
    if (!submission->is_started.load()) return false;
    submission->is_held = false;
    place(submission, is_refused, refused);
    moved = true;
    return true;
  });
  return moved;
}

bool PendingSubmissions::is_due(bool flush) const {
  if (collected_.empty()) return false;
  const bool whole =
      (expected_ > 0 && burst_ >= expected_) || collected_bytes_ >= parts_.fusion->threshold;
  return flush || whole || Clock::now() >= window_end_;
}

void PendingSubmissions::close_window() {
  collected_.clear();
  collected_bytes_ = 0;
  window_end_ = Clock::time_point::max();
  window_open_.store(false);
}

void PendingSubmissions::finish(Submission* submission, Status status) {
  submission->status = std::move(status);
  if (std::exchange(submission->is_held, false)) std::erase(held_, submission);
  if (submission->newer != nullptr)
    submission->newer->older = submission->older;
  else
    newest_ = submission->older;
  if (submission->older != nullptr) submission->older->newer = submission->newer;
  finished_.push_back(submission);
}

// Frees the names and the memory of the submissions.
void PendingSubmissions::leave(const std::vector<Submission*>& submissions) {
  uint64_t count = 0, direct = 0;
  for (const Submission* one : submissions) {
    if (one->has_left) continue;
    ++(one->name == nullptr ? direct : count);
  }
  unfinished_ -= count;
  const uint64_t left = pending_.load() - count;
  if (count > 0 && unfinished_ == 0 && collected_.empty()) {
    expected_ = std::exchange(burst_, 0);
    // An early wake does not help a burst of one submission: its submitter most likely waits for it.
    burst_target_.store(expected_ >= 2 ? activity_.load() - left + expected_ : UINT64_MAX,
                        std::memory_order_relaxed);
  }
  parts_.names->remove(submissions);
  if (count > 0) pending_.fetch_sub(count);
  if (direct > 0) direct_.fetch_sub(direct);
}

void PendingSubmissions::fail_early(const Status& cause) {
  const Status late = parts_.handles->fail_early(newest_, cause);
  if (!late.ok() && parts_.fail_late != nullptr) parts_.fail_late(late);
}

bool PendingSubmissions::settle() {
  if (finished_.empty() && on_stream_.empty()) return false;
  for (Submission* submission : on_stream_) submission->own_name = submission->name->text;
  leave(on_stream_);
  for (Submission* submission : on_stream_) {
    submission->name = nullptr;
    submission->has_left = true;
  }
  parts_.handles->go_on(on_stream_);
  on_stream_.clear();
  const Clock::time_point now = Clock::now();
  for (const Submission* submission : finished_) {
    parts_.metrics->finished(submission->request.op, submission->status.ok(), submission->bytes,
                             now - submission->since);
  }
  leave(finished_);
  const Status late = parts_.handles->finish(finished_);
  finished_.clear();
  if (!late.ok() && parts_.fail_late != nullptr) parts_.fail_late(late);
  return true;
}

}  // namespace hvd::runtime
