#include "launcher/agent/ranks/side_by_side.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>

#include "base/mutex.h"

namespace hvd::launcher {

namespace {

// On two cores, four threads start 256 processes in half the time of one thread, and eight are no
// faster.
constexpr size_t kMostBeside = 3;
constexpr size_t kStepsOfOne = 8;
constexpr size_t kStackSize = 1 << 20;

struct SharedSteps {
  size_t count;
  std::function<void(size_t)> step;
  std::atomic<size_t> next{0};
  std::atomic<size_t> done{0};

  void work() {
    for (size_t i = next++; i < count; i = next++) {
      step(i);
      if (++done == count) done.notify_all();
    }
  }
};

// The threads beside the caller. They never end, and work for one call after another.
class Threads {
 public:
  void work_beside(const std::shared_ptr<SharedSteps>& steps, size_t wanted) {
    while (count_ < wanted && start_one()) ++count_;
    const MutexLock lock(mutex_);
    steps_ = steps;
    changed_.notify_all();
  }
  void forget() {
    const MutexLock lock(mutex_);
    steps_.reset();
  }

 private:
  // If no further thread can start, the existing ones run all steps.
  bool start_one() {
    pthread_attr_t attributes;
    pthread_t thread;
    if (::pthread_attr_init(&attributes) != 0) return false;
    ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    ::pthread_attr_setstacksize(&attributes, kStackSize);
    const int error = ::pthread_create(&thread, &attributes, run, this);
    ::pthread_attr_destroy(&attributes);
    return error == 0;
  }
  static void* run(void* self) {
    for (;;) static_cast<Threads*>(self)->take()->work();
  }
  std::shared_ptr<SharedSteps> take() {
    MutexLock lock(mutex_);
    while (!steps_ || steps_->next >= steps_->count) changed_.wait(lock.native());
    return steps_;
  }

  size_t count_ = 0;
  Mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<SharedSteps> steps_ HVD_GUARDED_BY(mutex_);
};

}  // namespace

void run_side_by_side(size_t count, std::function<void(size_t)> step) {
  static Threads& threads = *new Threads;  // they outlive the objects of this program
  const auto steps = std::make_shared<SharedSteps>();
  steps->count = count;
  steps->step = std::move(step);
  const size_t beside = std::min(kMostBeside, count / kStepsOfOne);
  if (beside > 0) threads.work_beside(steps, beside);
  steps->work();
  for (size_t done = steps->done; done < count; done = steps->done) steps->done.wait(done);
  if (beside > 0) threads.forget();
}

}  // namespace hvd::launcher
