#include "plugins/nccl/double_capture.h"

#include <algorithm>
#include <utility>

#include "plugins/nccl/double_occupancy.h"

namespace hvd::test_double {
namespace {

struct Captures {
  Mutex mutex;
  std::vector<std::shared_ptr<Capture>> under_way HVD_GUARDED_BY(mutex);
};
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

thread_local int capture_mode = Capture::kGlobal;

}  // namespace

Capture::Capture(int mode) : thread_(own_thread()), mode_(mode) {}

std::shared_ptr<Capture> Capture::begin(int mode, void* stream) {
  const std::shared_ptr<Capture> made(new Capture(mode));
  made->join(stream);
  Captures& all = captures();
  const MutexLock lock(all.mutex);
  all.under_way.push_back(made);
  return made;
}

bool Capture::end() {
  {
    Captures& all = captures();
    const MutexLock lock(all.mutex);
    std::erase_if(all.under_way, [this](const auto& one) { return one.get() == this; });
  }
  std::vector<void*> streams;
  {
    const MutexLock lock(mutex_);
    streams.swap(streams_);
  }
  for (void* stream : streams) set_capture(stream, nullptr);
  return !is_spoiled_.load();
}

void Capture::keep(std::function<void()> work) {
  const MutexLock lock(mutex_);
  work_.push_back(std::move(work));
}

void Capture::join(void* stream) {
  const MutexLock lock(mutex_);
  streams_.push_back(stream);
}

bool Capture::is_of_this_thread() const { return thread_ == own_thread(); }

int Capture::exchange_mode(int mode) { return std::exchange(capture_mode, mode); }

bool Capture::forbids_unsafe_call() const {
  if (capture_mode == kRelaxed) return false;
  if (is_of_this_thread()) return mode_ != kRelaxed;
  return capture_mode == kGlobal && mode_ == kGlobal;
}

bool Capture::allows_unsafe_call() {
  bool allows = true;
  Captures& all = captures();
  const MutexLock lock(all.mutex);
  for (const auto& one : all.under_way) {
    if (!one->forbids_unsafe_call()) continue;
    one->is_spoiled_.store(true);
    allows = false;
  }
  return allows;
}

}  // namespace hvd::test_double
