// The launches of this process on one device. Any thread.
#pragma once

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

 private:
  Mutex mutex_;
  int under_way_ HVD_GUARDED_BY(mutex_) = 0;
  int thread_ HVD_GUARDED_BY(mutex_) = 0;  // of those under way
};

}  // namespace hvd::test_double
