// Exponential backoff with jitter: pauses between attempts that grow and vary at random, so that many
// clients of one server do not try at the same moment. The clients of this folder use Backoff. rest() blocks.
// One thread at a time.
#pragma once

#include "base/clock.h"

namespace hvd::rendezvous {

class Backoff {
 public:
  Backoff(double first_seconds, double longest_seconds)
      : first_(first_seconds), longest_(longest_seconds), pause_(first_seconds) {}

  // Sleeps for half to one and a half times the current pause, at most until the deadline.
  void rest(Deadline deadline);
  void begin_anew() { pause_ = first_; }

 private:
  double first_;
  double longest_;
  double pause_;
};

}  // namespace hvd::rendezvous
