// The launches of this process on one device. Any thread.
#pragma once

#include <condition_variable>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {

class DeviceLaunches {
 public:
  // Lives as long as the process.
  static DeviceLaunches& of(int device);

  // A launch lasts from the end of its group until it is on its stream. `thread`: the one that ended the
  // group.
  void begin(int thread, const std::string& communicator);
  void end();
  // Calls `enqueue` for the next launch on the device, with the counts before it.
  void launch(const std::string& communicator,
              const std::function<void(const LaunchCounts&)>& enqueue);
  // Between add and remove, the counts of this rank have the communicator.
  void add(const std::string& communicator);
  void remove(const std::string& communicator);
  // Waits for one of the places that kernels have on the device. A kernel that gets none in
  // HVD_DOUBLE_PLACE_MS is a finding, and runs.
  void take_place();
  void give_place();

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  int running_ HVD_GUARDED_BY(mutex_) = 0;  // kernels
  LaunchCounts counts_ HVD_GUARDED_BY(mutex_);
  int under_way_ HVD_GUARDED_BY(mutex_) = 0;
  int thread_ HVD_GUARDED_BY(mutex_) = 0;  // of those under way
};

}  // namespace hvd::test_double
