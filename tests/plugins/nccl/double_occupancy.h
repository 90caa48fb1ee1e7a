// The thread that uses a communicator. NCCL allows one thread at a time, besides one that aborts
// the communicator. Any thread may call.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "plugins/nccl/double.h"

namespace hvd::test_double {

// Returns the name of a thread, for example "thread 12 (hvd-nccl)".
std::string name_of_thread(int id);
int own_thread();

class Occupancy {
 public:
  void enter(const char* call) {
    int inside = 0;
    if (thread_.load() != own_thread() && !thread_.compare_exchange_strong(inside, own_thread())) {
      report(kOneThread, name_of_thread(own_thread()) + " calls " + call + " while " +
                             name_of_thread(inside) + " is in " + call_.load() +
                             " of the same communicator");
      return;
    }
    if (depth_++ == 0) call_.store(call);
  }
  void leave() {
    if (thread_.load() == own_thread() && --depth_ == 0) thread_.store(0);
  }
  // Waits until no other thread uses the communicator.
  void wait_for_others() const;

 private:
  std::atomic<int> thread_{0};  // 0: no thread
  std::atomic<const char*> call_{""};
  int depth_ = 0;  // used by thread_ only
};

// Marks the duration of a call of this thread.
class CallScope {
 public:
  CallScope(Occupancy& occupancy, const char* call) : occupancy_(occupancy) {
    occupancy_.enter(call);
    std::this_thread::yield();  // let a racing thread run now
  }
  ~CallScope() { occupancy_.leave(); }
  CallScope(const CallScope&) = delete;

 private:
  Occupancy& occupancy_;
};

}  // namespace hvd::test_double
