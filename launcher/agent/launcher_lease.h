// The lease: the maximum silence of the launcher. Class Agent owns this object, and abandons the job at deadline(). One
// thread.
#pragma once

#include "base/clock.h"

namespace hvd::launcher {

class LauncherLease {
 public:
  explicit LauncherLease(double seconds) { set(seconds); }

  // Sets the length of the lease, and renews the lease. 0: the launcher may be silent for any time.
  void set(double seconds) {
    seconds_ = seconds;
    renew();
  }
  double seconds() const { return seconds_; }
  void renew() { until_ = seconds_ > 0 ? Deadline::after_seconds(seconds_) : Deadline::never(); }
  // Until resume(), the lease has no deadline.
  void suspend() { is_suspended_ = true; }
  void resume() { is_suspended_ = false; }
  bool is_suspended() const { return is_suspended_; }
  Deadline deadline() const { return is_suspended_ ? Deadline::never() : until_; }

 private:
  double seconds_ = 0;
  Deadline until_ = Deadline::never();
  bool is_suspended_ = false;
};

}  // namespace hvd::launcher
