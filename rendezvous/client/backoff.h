// Pauses between tries of the same thing: each longer than the one before, and random, so that
// many who lost or await the same do not come together. Blocks; one thread at a time.
#pragma once

#include "base/clock.h"

namespace hvd::rendezvous {

class Backoff {
 public:
  Backoff(double first_seconds, double longest_seconds)
      : first_(first_seconds), longest_(longest_seconds), pause_(first_seconds) {}

  // From half to one and a half times the pause, at most until the deadline.
  void rest(Deadline deadline);
  void begin_anew() { pause_ = first_; }

 private:
  double first_;
  double longest_;
  double pause_;
};

}  // namespace hvd::rendezvous
