#include "launcher/supervisor.h"

#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "launcher/report.h"

namespace hvd::launcher {

Supervisor::Supervisor(const SlotPlan& plan)
    : plan_(plan),
      host_done_(plan.hosts.size()),
      rank_done_(plan.slots.size()),
      hosts_left_(static_cast<int>(plan.hosts.size())) {}

std::string Supervisor::place(int rank) const {
  return cat("rank ", rank, " on ", host_name(plan_.slots[static_cast<size_t>(rank)].host));
}

std::string Supervisor::host_name(int host) const {
  return cat("host ", plan_.hosts[static_cast<size_t>(host)].name);
}

Supervisor::Action Supervisor::fail(int exit_code, std::string sentence) {
  if (exit_code_ == 0 && sentence_.empty()) {
    exit_code_ = exit_code;
    sentence_ = std::move(sentence);
  }
  if (ending_) return Action::kNone;
  ending_ = true;
  return Action::kEnd;
}

Supervisor::Failure Supervisor::describe(const RankExit& exit) const {
  if (exit.by_agent) return {kExitLauncher, cat(place(exit.rank), " was ended by its agent")};
  if (exit.signal != 0) {
    return {kExitSignal + exit.signal, cat(place(exit.rank), " was killed by signal ", exit.signal,
                                           " (", signal_name(exit.signal), ")")};
  }
  return {exit.code, cat(place(exit.rank), " exited with code ", exit.code)};
}

Supervisor::Action Supervisor::on_exit(const RankExit& exit, std::optional<int> left_by) {
  if (exit.rank < 0 || exit.rank >= plan_.size()) return Action::kNone;
  rank_done_[static_cast<size_t>(exit.rank)] = true;
  // What ends because the job ends is no cause of it.
  if (ending_) return Action::kNone;
  if (exit.code == 0 && exit.signal == 0) {
    return exit.rank == awaited_ ? fail_late() : Action::kNone;
  }
  Failure failure = describe(exit);
  if (!left_by || *left_by < 0 || *left_by >= plan_.size() || *left_by == exit.rank) {
    return fail(failure.exit_code, std::move(failure.sentence));
  }
  // Who was awaited may have left because of yet another.
  if (late_ && exit.rank != awaited_) return Action::kNone;
  failure.sentence += cat(", after rank ", *left_by, " had left the job");
  late_ = std::move(failure);
  awaited_ = *left_by;
  return rank_done_[static_cast<size_t>(awaited_)] ? fail_late() : Action::kAwait;
}

Supervisor::Action Supervisor::on_awaited() { return fail_late(); }

Supervisor::Action Supervisor::fail_late() {
  if (ending_ || !late_) return Action::kNone;
  return fail(late_->exit_code, late_->sentence);
}

void Supervisor::leave(int host) {
  if (is_done(host)) return;
  host_done_[static_cast<size_t>(host)] = true;
  --hosts_left_;
}

Supervisor::Action Supervisor::on_finished(int host) {
  leave(host);
  if (ending_) return Action::kNone;
  for (const Slot& slot : plan_.slots) {
    if (slot.host != host || rank_done_[static_cast<size_t>(slot.rank)]) continue;
    return fail(kExitLauncher, cat(place(slot.rank), " ended without its agent saying how"));
  }
  return Action::kNone;
}

Supervisor::Action Supervisor::on_lost(int host, const Status& why) {
  leave(host);
  if (ending_) return Action::kNone;
  return fail(kExitLauncher, cat(host_name(host), " was lost: ", why.message()));
}

Supervisor::Action Supervisor::on_start_failed(int host, const Status& why) {
  leave(host);
  if (ending_) return Action::kNone;
  return fail(kExitLauncher, cat(host_name(host), ": start: ", why.message()));
}

Supervisor::Action Supervisor::on_signal(int number) {
  ++signals_;
  const Action action = fail(kExitSignal + number, cat("ended by ", signal_name(number)));
  return signals_ > 1 ? Action::kKill : action;
}

Supervisor::Action Supervisor::on_output_broken(int error_number) {
  if (error_number == EPIPE) return fail(kExitSignal + SIGPIPE, "");
  return fail(kExitLauncher,
              system_error("cannot write the ranks' output", error_number).message());
}

int Supervisor::exit_code() const { return exit_code_; }
std::string Supervisor::report() const { return sentence_; }

}  // namespace hvd::launcher
