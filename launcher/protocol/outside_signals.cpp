#include "launcher/protocol/outside_signals.h"

namespace hvd::launcher {

void OutsideSignals::add(int number, Target target, Clock::time_point now) {
  Arrival& arrival = arrivals_[number];
  bool& is_hit = arrival.by_target[static_cast<size_t>(target)];
  // A repeated signal to a target is new if the earlier one was already taken.
  const bool is_new = arrival.due == Clock::time_point() || (arrival.is_taken && is_hit);
  if (is_new) {
    arrival = {.due = now + (target == Target::kLauncher ? kSameSignalFor : kLoneSignalFor)};
  }
  is_hit = true;
}

std::vector<OutsideSignal> OutsideSignals::take(Clock::time_point now) {
  std::vector<OutsideSignal> taken;
  for (auto each = arrivals_.begin(); each != arrivals_.end();) {
    Arrival& arrival = each->second;
    const auto& [by_launcher, by_guardian, by_agent] = arrival.by_target;
    const bool has_reached_ranks = by_guardian && by_agent;
    const bool is_due = now >= arrival.due;
    if (!arrival.is_taken && (has_reached_ranks || is_due)) {
      taken.push_back({each->first, by_launcher, has_reached_ranks});
      arrival.is_taken = true;
      arrival.due = now + kSameSignalFor;
    }
    each = now >= arrival.due ? arrivals_.erase(each) : std::next(each);
  }
  return taken;
}

Deadline OutsideSignals::deadline() const {
  Deadline next = Deadline::never();
  for (const auto& [number, arrival] : arrivals_) {
    if (arrival.due < next.time()) next = Deadline::at(arrival.due);
  }
  return next;
}

}  // namespace hvd::launcher
