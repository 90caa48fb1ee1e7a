// The launches of this process on one device. Any thread may call.
#pragma once

#include <condition_variable>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {

class DeviceLaunches {
 public:
  // Lives as long as the process.
  static DeviceLaunches& of(int device);

  // A launch lasts from the end of its group until its stream has it. `thread`: the thread that
  // ended the group.
  void begin(int thread, const std::string& communicator);
  void end();
  // Calls `enqueue` for the next launch on the device, with the launch counts before it.
  void launch(const std::string& communicator,
              const std::function<void(const LaunchCounts&)>& enqueue);
  // The launch counts contain a communicator between add and remove.
  void add(const std::string& communicator);
  void remove(const std::string& communicator);
  // Waits for one of the device's places for kernels. A kernel without a place after
  // HVD_DOUBLE_PLACE_MS is a finding, and runs.
  void take_place();
  void give_place();

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  int running_ HVD_GUARDED_BY(mutex_) = 0;  // running kernels
  LaunchCounts counts_ HVD_GUARDED_BY(mutex_);
  int under_way_ HVD_GUARDED_BY(mutex_) = 0;
  int thread_ HVD_GUARDED_BY(mutex_) = 0;  // thread of the launches under way
};

}  // namespace hvd::test_double
