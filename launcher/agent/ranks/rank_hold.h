// Stops the ranks and their children while the launcher is silent: another host may have replaced this host, and two
// ranks must not write the same checkpoint. Owns the time limit and the start of the silence. The agent owns this
// object, and continues the ranks when the launcher confirms that this host is still in the job. One thread.
#pragma once

#include <functional>
#include <utility>

#include "base/clock.h"

namespace hvd::launcher {

class RankHold {
 public:
  // `signal` sends a signal to the ranks and their children.
  explicit RankHold(std::function<void(int number)> signal) : signal_(std::move(signal)) {}

  // Call when the ranks run. After this many seconds of the launcher's silence, stops the ranks; 0: never.
  void begin(double after_seconds);
  // Call when bytes from the launcher arrive. Does not continue stopped ranks.
  void received();
  // Call when the launcher is about to stop: its silence is then allowed until it sends something.
  void suspend() { at_ = Deadline::never(); }
  // Continues stopped ranks: this host is still in the job, or the ranks end with a grace period.
  void let_go();
  // Call when the ranks are ending: later silence does not stop them. Does not continue stopped ranks.
  void end();

  // Returns whether another host may replace this host.
  bool is_used() const { return after_seconds_ > 0; }
  bool is_holding() const { return is_holding_; }
  // Returns the seconds since the launcher's last bytes while ranks are stopped, else 0.
  double silent_seconds() const;
  Deadline deadline() const { return at_; }
  void on_deadline();

 private:
  const std::function<void(int number)> signal_;
  double after_seconds_ = 0;
  Clock::time_point received_{};
  Deadline at_ = Deadline::never();
  bool is_running_ = false;
  bool is_holding_ = false;
};

}  // namespace hvd::launcher
