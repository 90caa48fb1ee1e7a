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

Supervisor::Action Supervisor::on_exit(const RankExit& exit) {
  if (exit.rank < 0 || exit.rank >= plan_.size()) return Action::kNone;
  rank_done_[static_cast<size_t>(exit.rank)] = true;
  if (exit.code == 0 && exit.signal == 0) return Action::kNone;
  // What ends because the job ends is no cause of it.
  if (ending_) return Action::kNone;
  if (exit.by_agent) {
    return fail(kExitLauncher, cat(place(exit.rank), " was ended by its agent"));
  }
  if (exit.signal != 0) {
    return fail(kExitSignal + exit.signal, cat(place(exit.rank), " was killed by signal ", exit.signal,
                                       " (", signal_name(exit.signal), ")"));
  }
  return fail(exit.code, cat(place(exit.rank), " exited with code ", exit.code));
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
