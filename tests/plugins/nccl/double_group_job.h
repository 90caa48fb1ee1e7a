// The launch of a group on a nonblocking communicator: ncclGroupJob in src/group.cc of NCCL. Any
// thread may call; two threads that complete a communicator at the same time are a finding.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "plugins/nccl/double.h"

namespace hvd::test_double {

class GroupJob {
 public:
  explicit GroupJob(std::function<void()> launch) : thread_(std::move(launch)) {}
  GroupJob(const GroupJob&) = delete;

  // Joins the thread of a communicator that ends without completing its last job.
  void end() {
    if (!joined_.exchange(true)) thread_.join();
  }

  // ncclGroupJobComplete: joins the thread and frees the job, without a lock. The double keeps the
  // memory, so that a use after the free is a finding instead of a crash. 2.28 and 2.29 count
  // references; earlier and later versions join the thread in each call.
  void complete(int version) {
    if (freed_.load()) report(kOneThread, "a group job is completed after it was freed");
    const bool counts = version >= 22800 && version < 23000;
    if (!joined_.exchange(true)) {
      thread_.join();
      join_has_returned_.store(true);
    } else if (!counts) {
      return report(kOneThread, "two threads join the thread of one group job");
    }
    const int left = references_.fetch_sub(1) - 1;
    if (left < 0) report(kOneThread, "the reference count of a group job falls below zero");
    if (left > 0) return;
    if (!join_has_returned_.load()) {
      report(kOneThread, "a group job is freed while another thread joins its thread");
    }
    freed_.store(true);
  }

 private:
  std::atomic<bool> joined_{false}, join_has_returned_{false}, freed_{false};
  std::atomic<int> references_{1};
  std::thread thread_;
};

}  // namespace hvd::test_double
