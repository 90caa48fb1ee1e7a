// Reports that the launch's loop is blocked, before the lease ends and agents end their ranks. A thread posts functions
// to the loop, and checks whether they run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/observe/job_part.h"
#include "net/asio.h"

namespace hvd::launcher {

class LoopWatch : public JobPart {
 public:
  // Reports on standard error. `launch` is only used during the call.
  explicit LoopWatch(PartLaunch& launch);
  // The thread calls `report` once for each blockage of the loop that lasts two thirds of the lease. `report` must own
  // all objects that it uses. A lease of 0 needs no watch.
  LoopWatch(net::asio::any_io_executor loop, double lease_seconds,
            std::function<void(const std::string& sentence)> report);
  // Does not wait for the thread.
  ~LoopWatch() override;

 private:
  struct State;
  static void watch(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
