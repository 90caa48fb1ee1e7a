// The announced changes of an elastic job's hosts. Ranks that receive a notice of a change request places in the next
// generation at their next commit. ElasticCore owns this object and sends the notices. No I/O, no clock.
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
  // Returns the announced changes: flags of rendezvous::HostUpdates.
  int32_t updates() const { return updates_; }
  // Sets the current HostUpdates flags. Returns true if the flags have changed: the ranks need another notice.
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
