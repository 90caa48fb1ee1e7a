#include "plugins/nccl/double_launches.h"

#include <unistd.h>

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

}  // namespace hvd::test_double
