// The interface of a service of the job: timeline, stall inspector, metrics, autotuning, the order of
// batches on devices. The service's messages are sent along the combining tree, up to the root or down to all
// ranks. These messages stay in order with plans and announcements on each link: a message that the root sends
// before a plan arrives before this plan. The runtime core calls every function with the progress
// lock held.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace hvd::runtime {

enum class ServiceId : uint8_t {
  kTimeline = 0,
  kStall = 1,
  kMetrics = 2,
  kTuning = 3,
  kDeviceTurns = 4
};
constexpr size_t kServices = 5;

class Service {
 public:
  virtual ~Service() = default;
  // Receives a message of rank `from`: at the root, from RuntimeCore::to_root of any rank; at all ranks,
  // from RuntimeCore::to_all of the root. Must check the message, which may be malformed.
  virtual void receive(int32_t from, ByteView message) = 0;
  // Returns the time of the next call of on_alarm; max if never. The runtime core reads the time at each step.
  // A service that sets an earlier time outside a step must notify Progress. A service must not wake a rank
  // without pending work.
  virtual Clock::time_point alarm() const { return Clock::time_point::max(); }
  virtual void on_alarm(Clock::time_point) {}
  // The runtime core calls on_end once, when the job is over for this rank. No further message follows.
  virtual void on_end(const Status& why) { static_cast<void>(why); }
};

}  // namespace hvd::runtime
