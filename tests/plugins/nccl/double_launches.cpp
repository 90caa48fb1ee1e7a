#include "plugins/nccl/double_launches.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "plugins/nccl/double_occupancy.h"

namespace hvd::test_double {

int own_thread() {
  static thread_local const int id = ::gettid();
  return id;
}

std::string name_of_thread(int id) {
  std::ifstream file("/proc/self/task/" + std::to_string(id) + "/comm");
  std::string name;
  std::getline(file, name);
  return "thread " + std::to_string(id) + " (" + name + ")";
}

void Occupancy::wait_for_others() const {
  for (int inside = thread_.load(); inside != 0 && inside != own_thread();) {
    std::this_thread::yield();
    inside = thread_.load();
  }
}

DeviceLaunches& DeviceLaunches::of(int device) {
  static auto* const mutex = new Mutex;
  static auto* const devices = new std::map<int, std::unique_ptr<DeviceLaunches>>;
  const MutexLock lock(*mutex);
  auto& found = (*devices)[device];
  if (found == nullptr) found = std::make_unique<DeviceLaunches>();
  return *found;
}

void DeviceLaunches::begin(int thread, const std::string& communicator) {
  const MutexLock lock(mutex_);
  if (under_way_++ > 0 && thread_ != thread) {
    report(kOneLauncher, name_of_thread(thread) + " launches on " + communicator + " while " +
                             name_of_thread(thread_) + " launches on the same device");
  }
  thread_ = thread;
}

void DeviceLaunches::end() {
  const MutexLock lock(mutex_);
  --under_way_;
}

void DeviceLaunches::add(const std::string& communicator) {
  const MutexLock lock(mutex_);
  counts_[communicator] = 0;
}

void DeviceLaunches::remove(const std::string& communicator) {
  const MutexLock lock(mutex_);
  counts_.erase(communicator);
}

void DeviceLaunches::launch(const std::string& communicator,
                            const std::function<void(const LaunchCounts&)>& enqueue) {
  const MutexLock lock(mutex_);
  enqueue(counts_);
  const auto count = counts_.find(communicator);
  if (count != counts_.end()) ++count->second;
}

void DeviceLaunches::take_place() {
  const int64_t places = variable("HVD_DOUBLE_PLACES", INT64_MAX);
  const std::chrono::milliseconds limit(variable("HVD_DOUBLE_PLACE_MS", 20'000));
  MutexLock lock(mutex_);
  const auto has_place = [&]() HVD_REQUIRES(mutex_) { return running_ < places; };
  if (!changed_.wait_for(lock.native(), limit, has_place)) {
    report(kPlaces, "a kernel waits for a place, and the kernels in all " + std::to_string(places) +
                        " places wait for other ranks");
  }
  ++running_;
}

void DeviceLaunches::give_place() {
  {
    const MutexLock lock(mutex_);
    --running_;
  }
  changed_.notify_all();
}

}  // namespace hvd::test_double
