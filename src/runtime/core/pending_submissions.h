// The incomplete submissions of this rank: the submission queues, the batching window, the list of unfinished
// submissions, and the submissions that the current pass has finished. Sends, receives and calls of groups have a
// separate queue without a batching window. Lives on the progress thread, except for the functions marked "any
// thread".
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/fusion_planner.h"
#include "runtime/submission/submission.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

// The user's latest submission, for reports on this rank's activity.
struct LastSubmission {
  Clock::time_point when{};
  std::string name;  // empty: no submission yet
  int32_t op = 0;
  // A send, a receive or a call of a group gets a name only for a report.
  int32_t peer = 0, tag = 0;
  std::shared_ptr<const GroupMembers> group;
  const char* program = nullptr;  // hvd_submission.program; the user's memory
};
std::string name_text(const LastSubmission& last);

class PendingSubmissions {
 public:
  // Objects that must outlive the PendingSubmissions.
  struct Parts {
    const FusionOptions* fusion;
    TensorTable* names;
    HandleTable* handles;
    Metrics* metrics;
    // A callback for an error that ends the process; may be null.
    std::function<void(const Status&)> fail_late = nullptr;
  };
  // `wakes_early`: a burst as large as the last burst wakes the progress thread before the window ends.
  PendingSubmissions(const Parts& parts, std::chrono::microseconds window, bool wakes_early)
      : parts_(parts), window_(window), wakes_early_(wakes_early) {}

  // ---- any thread ----
  enum class Wake { kNone, kDriver, kFull };
  // Queues a submission. Returns the call of Progress that the caller must make: notify() for kDriver, notify_full()
  // for kFull (a complete burst).
  Wake submit(Submission* submission);
  // Starts a submission that awaits its start.
  void start(Submission* submission);
  // Queues a send, a receive or a call of a group.
  void submit_direct(Submission* submission) {
    direct_.fetch_add(1);
    direct_queue_.push(submission);
  }
  bool has_input() const {
    return !queue_.empty() || !direct_queue_.empty() || has_started_.load();
  }
  // Returns the number of incomplete submissions.
  uint64_t count() const {
    return pending_.load(std::memory_order_relaxed) + direct_.load(std::memory_order_relaxed);
  }
  // Returns the number of submissions so far, without those of submit_direct().
  uint64_t activity() const { return activity_.load(std::memory_order_relaxed); }

  // ---- with the progress lock held ----
  // Moves the started and the queued submissions into the window. If
  // `is_refused`, which may be null, returns true for a submission, moves it to the end of `refused` instead. Holds
  // submissions that await their start. Returns true if it moved any submission.
  bool collect(const std::function<bool(const Submission&)>& is_refused,
               std::vector<Submission*>* refused);
  // Takes the queue as a chain by `next`, the oldest first; nullptr if it is empty. The caller
  // passes each submission to admit_direct() before it uses the next one.
  Submission* take_direct() { return direct_queue_.take_all(); }
  // Adds a submission from take_direct() to the unfinished submissions.
  void admit_direct(Submission* submission);
  // Returns whether the window ends now. With `flush`, an open window ends at once.
  bool is_due(bool flush) const;
  // Returns the submissions that await their start, in order.
  const std::vector<Submission*>& held() const { return held_; }
  // Returns the submissions in the window, in order.
  const std::vector<Submission*>& collected() const { return collected_; }
  void close_window();
  // Returns the time at which the window ends; max if no window is open.
  Clock::time_point window_end() const { return window_end_; }
  // Sets the length of windows that open after this call.
  void set_window(std::chrono::microseconds window) { window_ = window; }

  // Returns the newest unfinished submission. Submission::older links to earlier submissions.
  Submission* newest() const { return newest_; }
  const LastSubmission& last() const { return last_; }
  // Marks a submission as queued on a device's stream. settle() ends the use of its name and memory, and wakes its
  // waiters.
  void go_on(Submission* submission) { on_stream_.push_back(submission); }
  // Prevents early use of results (HandleTable::fail_early). Call it before submissions are aborted, while streams
  // still wait for them.
  void fail_early(const Status& cause);
  // Marks a submission as finished. settle() wakes its waiters.
  void finish(Submission* submission, Status status);
  // Completes the handles of all finished submissions. Returns true if any were finished or on a stream.
  bool settle();

 private:
  using IsRefused = std::function<bool(const Submission&)>;
  void admit(Submission* submission, Clock::time_point now);
  void place(Submission* submission, const IsRefused& is_refused,
             std::vector<Submission*>* refused);
  bool place_started(const IsRefused& is_refused, std::vector<Submission*>* refused);
  void leave(const std::vector<Submission*>& submissions);

  const Parts parts_;
  std::chrono::microseconds window_;
  const bool wakes_early_;

  std::vector<Submission*> held_;       // awaiting their start
  std::vector<Submission*> collected_;  // in the window
  uint64_t collected_bytes_ = 0;
  Clock::time_point window_end_ = Clock::time_point::max();
  uint64_t burst_ = 0;            // submissions since none was pending
  uint64_t expected_ = 0;         // the size of the previous burst
  Submission* newest_ = nullptr;  // newest collected submission that is unfinished; or null
  LastSubmission last_;
  std::vector<Submission*> on_stream_, finished_;
  size_t unfinished_ = 0;  // number of unfinished submissions from collect()

  // Shared with other threads.
  SubmissionQueue queue_;
  SubmissionQueue direct_queue_;
  alignas(64) std::atomic<uint64_t> direct_{0};  // incomplete ones of submit_direct()
  alignas(64) std::atomic<uint64_t> pending_{0};
  std::atomic<uint64_t> activity_{0};
  std::atomic<uint64_t> burst_target_{UINT64_MAX};  // activity() at which the burst is complete
  std::atomic<bool> window_open_{false};
  std::atomic<bool> has_started_{false};  // a submission of held_ or of the queue was started
};

}  // namespace hvd::runtime
