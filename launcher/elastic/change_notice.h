// The changes about which the ranks of an elastic job have been notified. After a notice, the ranks request their next
// places at their next commit. ElasticCore owns this object and notifies the ranks. No I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "launcher/elastic/deadlines.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

class ChangeNotice {
 public:
  // A sum of rendezvous::HostUpdates.
  int32_t updates() const { return updates_; }
  // Sets the present sum of updates. Returns whether the ranks do not know it yet.
  bool set(int32_t updates, Clock::time_point now);
  // Call when a generation begins: its ranks have received no notice.
  void clear() { *this = {}; }
  // Returns, once a minute, a sentence about the ranks or hosts that the next generation waits for.
  std::optional<std::string> reminder(Clock::time_point now);
  // Returns when reminder() will return a sentence again.
  Clock::time_point next() const { return reminder_.next(); }
  // Returns the cause of the change for a sentence, in the past tense.
  std::string cause() const;

 private:
  int32_t updates_ = rendezvous::kHostsUnchanged;
  Clock::time_point since_{};
  Reminder reminder_;
};

}  // namespace hvd::launcher
