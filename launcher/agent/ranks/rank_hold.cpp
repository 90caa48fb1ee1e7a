#include "launcher/agent/ranks/rank_hold.h"

#include <chrono>
#include <csignal>

namespace hvd::launcher {

void RankHold::begin(double after_seconds) {
  after_seconds_ = after_seconds;
  is_running_ = true;
  received();
}

void RankHold::received() {
  if (!is_running_ || is_holding_ || after_seconds_ <= 0) return;
  received_ = Clock::now();
  at_ = Deadline::after_seconds(after_seconds_);
}

void RankHold::let_go() {
  if (!std::exchange(is_holding_, false)) return;
  signal_(SIGCONT);
  received();
}

void RankHold::end() {
  is_running_ = false;
  at_ = Deadline::never();
}

double RankHold::silent_seconds() const {
  return is_holding_ ? std::chrono::duration<double>(Clock::now() - received_).count() : 0;
}

void RankHold::on_deadline() {
  at_ = Deadline::never();
  is_holding_ = true;
  signal_(SIGSTOP);
  signal_(SIGSTOP);  // again, for processes forked during the first signal
}

}  // namespace hvd::launcher
