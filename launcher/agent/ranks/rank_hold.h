// Stops the ranks and their children while the launcher is silent: another host may have replaced this one, and two
// ranks must not write one checkpoint. Owns the time limit and the start of the silence. The agent owns it, and
// continues the ranks when the launcher confirms that this host is still in the job. One thread.
#pragma once

#include <functional>

#include "base/clock.h"

namespace hvd::launcher {

class RankHold {
 public:
  // `signal` sends a signal to the ranks and their children.
  explicit RankHold(std::function<void(int number)> signal) : signal_(std::move(signal)) {}

  // The ranks run. They are stopped after this time without the launcher; 0: never.
  void begin(double after_seconds);
  // The launcher has sent something. Ranks that are stopped stay so.
  void received();
  // The launcher may be silent until it sends something.
  void suspend() { at_ = Deadline::never(); }
  // This host still counts.
  void let_go();
  // The ranks end, and are not stopped again. Those that are stopped stay so.
  void end();

  // Whether another host may replace this one.
  bool is_used() const { return after_seconds_ > 0; }
  bool is_holding() const { return is_holding_; }
  // Since the launcher has sent something, while the ranks are stopped; else 0.
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
