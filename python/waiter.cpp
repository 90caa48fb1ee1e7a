#include "python/waiter.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace hvd::python {

namespace {

// The first and the longest time in seconds for which the thread waits for the oldest work before it polls the other
// work. These times bound the delay of the other work: they are short for a training step, and long enough to cost
// little.
constexpr double kFirstSlice = 0.002;
constexpr double kLongestSlice = 0.005;

void end(Awaited* work, int status, char* error) {
  const std::unique_ptr<Awaited> ended(work);
  ended->complete(status, error);
}

}  // namespace

void Waiter::add(Awaited* work) {
  const MutexLock lock(mutex_);
  if (!runs_) std::thread([this] { run(); }).detach();
  runs_ = true;
  arrived_.push_back(work);
  changed_.notify_one();
}

void Waiter::run() {
  std::vector<char> error(kErrorSize);
  double slice = kFirstSlice;
  for (;;) {
    take_arrivals();
    const int status = wait_(open_.front()->handle(), slice, error.data(), error.size());
    if (status == HVD_IN_PROGRESS) {
      slice = std::min(slice * 2, kLongestSlice);
    } else {
      slice = kFirstSlice;
      Awaited* work = open_.front();
      open_.pop_front();
      end(work, status, error.data());
    }
    if (complete_others(error.data())) slice = kFirstSlice;
  }
}

void Waiter::take_arrivals() {
  MutexLock lock(mutex_);
  changed_.wait(lock.native(),
                [this]() HVD_REQUIRES(mutex_) { return !open_.empty() || !arrived_.empty(); });
  open_.insert(open_.end(), arrived_.begin(), arrived_.end());
  arrived_.clear();
}

// Polls all work, because ranks may have submitted newer work first. Returns whether any work was complete.
bool Waiter::complete_others(char* error) {
  bool any = false;
  for (auto at = open_.begin(); at != open_.end();) {
    int32_t is_done = 0;
    Awaited* work = *at;
    const int polled = poll_(work->handle(), &is_done, error, kErrorSize);
    if (polled == HVD_OK && is_done == 0) {
      ++at;
      continue;
    }
    at = open_.erase(at);
    any = true;
    end(work, wait_(work->handle(), -1, error, kErrorSize), error);
  }
  return any;
}

}  // namespace hvd::python
