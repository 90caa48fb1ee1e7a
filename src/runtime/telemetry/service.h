// Side channels of a job: timeline, stalls, metrics, tuning. Messages travel along the links of the
// combining tree, up to the root or from the root down to all ranks, in one order with the plans
// and announcements of the link: every rank gets a message that the root sent before a plan before
// that plan. Every function is called with the progress lock held.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace hvd::runtime {

enum class ServiceId : uint8_t { kTimeline = 0, kStall = 1, kMetrics = 2, kTuning = 3 };
constexpr size_t kServices = 4;

class Service {
 public:
  virtual ~Service() = default;
  // At the root: what rank `from` said (RuntimeCore::to_root). Elsewhere and at the root too: what the
  // root said (RuntimeCore::to_all), with `from` its rank. Trusts nothing of it.
  virtual void receive(int32_t from, ByteView message) = 0;
  // When on_alarm wants to be called; max: never. Read at each step of the runtime core; whoever makes it
  // earlier outside of a step notifies Progress. A rank with nothing pending is not to be woken.
  virtual Clock::time_point alarm() const { return Clock::time_point::max(); }
  virtual void on_alarm(Clock::time_point) {}
  // The job is over for this rank: nothing is heard or said any more. Called once.
  virtual void on_end(const Status& why) { static_cast<void>(why); }
};

}  // namespace hvd::runtime
