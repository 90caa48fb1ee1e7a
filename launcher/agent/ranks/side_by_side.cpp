#include "launcher/agent/ranks/side_by_side.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

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

void* work_beside(void* argument) {
  std::unique_ptr<std::shared_ptr<SharedSteps>> steps(
      static_cast<std::shared_ptr<SharedSteps>*>(argument));
  (*steps)->work();
  steps.reset();
  for (;;) ::pause();
}

// If no further thread can start, the existing ones run all steps.
void start_thread(const std::shared_ptr<SharedSteps>& steps) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (::pthread_attr_init(&attributes) != 0) return;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, kStackSize);
  auto argument = std::make_unique<std::shared_ptr<SharedSteps>>(steps);
  if (::pthread_create(&thread, &attributes, work_beside, argument.get()) == 0) {
    static_cast<void>(argument.release());
  }
  ::pthread_attr_destroy(&attributes);
}

}  // namespace

void run_side_by_side(size_t count, std::function<void(size_t)> step) {
  const auto steps = std::make_shared<SharedSteps>();
  steps->count = count;
  steps->step = std::move(step);
  for (size_t i = std::min(kMostBeside, count / kStepsOfOne); i > 0; --i) start_thread(steps);
  steps->work();
  for (size_t done = steps->done; done < count; done = steps->done) steps->done.wait(done);
}

}  // namespace hvd::launcher
