// This rank's submissions between the submission queue and their end: the batching window, the list of
// the unfinished ones, and those that this pass finished. Announces nothing and decides no outcome: the
// runtime core does. Belongs to the thread that makes progress, but for the functions of any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiation/fusion_planner.h"
#include "runtime/submission/handle_table.h"
#include "runtime/submission/submission_queue.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/telemetry/instruments.h"

namespace hvd::runtime {

// What the user handed in last, for those who ask what this rank does.
struct LastSubmission {
  Clock::time_point when{};
  std::string name;  // empty: nothing yet
  int32_t op = 0;
};

class PendingSubmissions {
 public:
  // What it uses, which outlives it.
  struct Parts {
    const FusionOptions* fusion;
    TensorTable* names;
    HandleTable* handles;
    Metrics* metrics;
  };
  // wakes_early: a burst as large as the last one wakes the driver before the window ends.
  PendingSubmissions(const Parts& parts, std::chrono::microseconds window, bool wakes_early)
      : parts_(parts), window_(window), wakes_early_(wakes_early) {}

  // ---- any thread ----
  enum class Wake { kNone, kDriver, kFull };
  // Hands a submission in; what the caller has to wake.
  Wake submit(Submission* submission);
  bool has_input() const { return !queue_.empty(); }
  // How many are not complete.
  uint64_t count() const { return pending_.load(std::memory_order_relaxed); }
  // How many there were.
  uint64_t activity() const { return activity_.load(std::memory_order_relaxed); }

  // ---- with the progress lock held ----
  // Takes what was handed in: into the window, or to the end of `refused` where that is not nullptr.
  // True when there was anything.
  bool collect(std::vector<Submission*>* refused);
  // Whether the window ends now. flush: without waiting for more.
  bool is_due(bool flush) const;
  // What the window holds, in order.
  const std::vector<Submission*>& collected() const { return collected_; }
  void close_window();
  // When the window ends; max: it is not open.
  Clock::time_point window_end() const { return window_end_; }
  // For windows that open from now on.
  void set_window(std::chrono::microseconds window) { window_ = window; }

  // The newest of the unfinished ones; the others by Submission::older.
  Submission* newest() const { return newest_; }
  const LastSubmission& last() const { return last_; }
  // One is over; settle makes it known.
  void finish(Submission* submission, Status status);
  // Gives what is finished back to its waiters. True when there was anything.
  bool settle();

 private:
  const Parts parts_;
  std::chrono::microseconds window_;
  const bool wakes_early_;

  std::vector<Submission*> collected_;  // in the window
  uint64_t collected_bytes_ = 0;
  Clock::time_point window_end_ = Clock::time_point::max();
  uint64_t burst_ = 0;            // submissions since nothing was pending
  uint64_t expected_ = 0;         // as many as in the burst before
  Submission* newest_ = nullptr;  // of the unfinished ones that were collected
  LastSubmission last_;
  std::vector<Submission*> finished_;

  // Shared with other threads.
  SubmissionQueue queue_;
  alignas(64) std::atomic<uint64_t> pending_{0};
  std::atomic<uint64_t> activity_{0};
  std::atomic<uint64_t> burst_target_{UINT64_MAX};  // the activity that makes the burst whole
  std::atomic<bool> window_open_{false};
};

}  // namespace hvd::runtime
