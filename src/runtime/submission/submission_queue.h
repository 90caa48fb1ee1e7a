// The queue from any number of submitting threads to the progress thread, first in, first out. No side
// waits or allocates. PendingSubmissions owns the queue.
#pragma once

#include <atomic>

#include "runtime/submission/submission.h"

namespace hvd::runtime {

class SubmissionQueue {
 public:
  void push(Submission* submission) {
    Submission* head = head_.load(std::memory_order_relaxed);
    do {
      submission->next = head;
    } while (!head_.compare_exchange_weak(head, submission, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  }
  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // Takes all submissions as a chain by `next`, the oldest first; nullptr if empty.
  Submission* take_all() {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Submission* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Submission* oldest = nullptr;
    while (newest != nullptr) {
      Submission* older = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

 private:
  alignas(64) std::atomic<Submission*> head_{nullptr};
};

}  // namespace hvd::runtime
