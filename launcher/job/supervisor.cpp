#include "launcher/job/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/report.h"

namespace hvd::launcher {

Supervisor::Supervisor(const SlotPlan& plan, bool waits)
    : plan_(plan),
      host_done_(plan.hosts.size()),
      rank_done_(plan.slots.size()),
      rank_joined_(plan.slots.size()),
      rank_killed_(plan.slots.size()),
      rank_succeeded_(plan.slots.size()),
      hosts_left_(static_cast<int>(plan.hosts.size())),
      waits_(waits) {}

std::string Supervisor::place(int rank) const {
  return cat("rank ", rank, " on ", host_name(plan_.slots[static_cast<size_t>(rank)].host));
}

std::string Supervisor::host_name(int host) const {
  return cat("host ", plan_.hosts[static_cast<size_t>(host)].name);
}

Supervisor::Action Supervisor::fail(int exit_code, std::string sentence, int rank) {
  if (exit_code_ == 0 && sentence_.empty()) {
    exit_code_ = exit_code;
    sentence_ = std::move(sentence);
    failed_rank_ = rank;
  }
  if (ending_) return Action::kNone;
  ending_ = true;
  return Action::kEnd;
}

Supervisor::Action Supervisor::fail_rank(int rank, Failure failure) {
  if (!waits_) return fail(failure.exit_code, std::move(failure.sentence), rank);
  const auto running = std::count(rank_done_.begin(), rank_done_.end(), false);
  if (running > 0) {
    news_ = cat(failure.sentence, "; --on-failure wait lets the other ", running,
                running == 1 ? " rank go on" : " ranks go on");
  }
  if (exit_code_ != 0) return Action::kNone;
  exit_code_ = failure.exit_code;
  sentence_ = std::move(failure.sentence);
  failed_rank_ = rank;
  return Action::kNone;
}

Supervisor::Failure Supervisor::describe(const RankExit& exit) const {
  if (exit.by_agent) return {kExitLauncher, cat(place(exit.rank), " was ended by its agent")};
  if (exit.signal == SIGKILL && exit.out_of_memory) {
    return {kExitSignal + exit.signal,
            cat(place(exit.rank),
                " was killed by the kernel's out-of-memory killer (signal 9); the "
                "ranks of that host need less memory or more of it, or fewer of them")};
  }
  std::string why = exit.out_of_memory
                        ? "; the kernel's out-of-memory killer has ended a process on that host"
                        : "";
  if (exit.master_port_user) {
    why += cat("; user ", *exit.master_port_user,
               " of that host has taken the job's MASTER_PORT, at which other ranks may have met a "
               "program of that user; start the job again, which takes another port");
  }
  if (exit.signal != 0) {
    return {kExitSignal + exit.signal, cat(place(exit.rank), " was killed by signal ", exit.signal,
                                           " (", signal_name(exit.signal), ")", why)};
  }
  return {exit.code, cat(place(exit.rank), " exited with code ", exit.code, why)};
}

// Ranks that others may have needed, and that no failure names: "; rank 1 on host b had exited with code 0".
std::string Supervisor::ended_before() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < rank_succeeded_.size(); ++rank) {
    if (rank_succeeded_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  if (ranks.empty()) return "";
  return cat("; ", ranks.size() == 1 ? place(ranks[0]) : cat("ranks ", ranks_text(ranks)),
             " had exited with code 0");
}

Supervisor::Action Supervisor::on_awaited_rank_ended(int rank, const std::vector<int>& waiting) {
  const bool is_one = waiting.size() == 1;
  return fail(kExitLauncher,
              cat(place(rank),
                  rank_succeeded_[static_cast<size_t>(rank)] ? " exited with code 0" : " has ended",
                  ", and ", is_one ? "rank " : "ranks ", ranks_text(waiting),
                  is_one ? " waits" : " wait", " for it in hvd.init()"),
              rank);
}

Supervisor::Action Supervisor::on_exit(const RankExit& exit, const std::optional<LeftBy>& left_by,
                                       const std::string& meanwhile) {
  if (exit.rank < 0 || exit.rank >= plan_.size()) return Action::kNone;
  rank_done_[static_cast<size_t>(exit.rank)] = true;
  rank_killed_[static_cast<size_t>(exit.rank)] = exit.after_grace;
  // A rank that ends because the job ends is not the cause.
  if (ending_) return Action::kNone;
  if (survives_) {
    const int host = plan_.slots[static_cast<size_t>(exit.rank)].host;
    const bool is_success = exit.code == 0 && exit.signal == 0;
    Failure failure = is_success ? Failure{0, ""} : describe(exit);
    if (goes_on(exit.rank, host, failure) || is_success) return Action::kNone;
    return fail(failure.exit_code, std::move(failure.sentence), exit.rank);
  }
  if (exit.code == 0 && exit.signal == 0) {
    rank_succeeded_[static_cast<size_t>(exit.rank)] = true;
    if (exit.rank != awaited_) return Action::kNone;
    // The end of a process may reset its connections.
    if (late_) late_->sentence = late_if_left_;
    return fail_late();
  }
  RankFailure failure{exit, left_by, meanwhile};
  return holds(failure) ? Action::kNone : judge(failure);
}

Supervisor::Action Supervisor::judge(const RankFailure& rank_failure) {
  const auto& [exit, left_by, meanwhile] = rank_failure;
  if (ending_) return Action::kNone;
  Failure failure = describe(exit);
  failure.sentence += meanwhile;
  if (left_by && !left_by->cause.empty()) failed_alike_.insert(exit.rank);
  if (!waits_) ended_by_ = exit.signal;
  const int peer = left_by ? left_by->rank : -1;
  if (peer < 0 || peer >= plan_.size() || peer == exit.rank) {
    if (left_by && !left_by->cause.empty()) {
      failure.sentence = cat(left_by->cause, "; ", failure.sentence, " because of it");
    } else if (!waits_) {
      failure.sentence += ended_before();
    }
    return fail_rank(exit.rank, std::move(failure));
  }
  // Only the awaited rank can name another cause: a third rank may have made it leave.
  if (late_ && exit.rank != awaited_) return Action::kNone;
  const bool has_ended = rank_done_[static_cast<size_t>(peer)];
  late_if_left_ = cat(failure.sentence, ", after rank ", peer, " had left the job");
  // The peer may have failed because of the same cause.
  const bool has_left = has_ended && peer != late_rank_ && !failed_alike_.contains(peer);
  if (left_by->cause.empty() || has_left)
    failure.sentence = late_if_left_;
  else
    failure.sentence = cat(left_by->cause, "; ", failure.sentence, " because of it");
  late_ = std::move(failure);
  late_rank_ = exit.rank;
  awaited_ = peer;
  return has_ended ? fail_late() : Action::kAwait;
}

bool Supervisor::holds(const RankFailure& failure) {
  if (!is_silent_) return false;
  for (int host = 0; held_.empty() && host < std::ssize(plan_.hosts); ++host) {
    const bool is_own = host == plan_.slots[static_cast<size_t>(failure.exit.rank)].host;
    if (!is_own && !is_done(host) && is_silent_(host)) silent_hosts_.insert(host);
  }
  if (silent_hosts_.empty()) return false;
  held_.push_back(failure);
  return true;
}

Supervisor::Action Supervisor::on_answer(int host) {
  if (silent_hosts_.erase(host) == 0 || !silent_hosts_.empty()) return Action::kNone;
  Action action = Action::kNone;
  std::vector<RankFailure> failures = std::exchange(held_, {});
  // The others may be consequences of these.
  std::stable_partition(failures.begin(), failures.end(),
                        [](const RankFailure& each) { return !each.left_by; });
  for (const RankFailure& each : failures) {
    const Action next = judge(each);
    if (next != Action::kNone) action = next;
  }
  return action;
}

bool Supervisor::goes_on(int rank, int host, const Failure& failure) const {
  return survives_ && survives_(rank, host, failure.exit_code, failure.sentence);
}

void Supervisor::grow() {
  host_done_.resize(plan_.hosts.size());
  rank_done_.resize(plan_.slots.size());
  rank_joined_.resize(plan_.slots.size());
  rank_killed_.resize(plan_.slots.size());
  rank_succeeded_.resize(plan_.slots.size());
  ++hosts_left_;
}

Supervisor::Action Supervisor::end_job(int exit_code, const std::string& sentence, int rank) {
  return fail(exit_code, sentence, rank);
}

Supervisor::Action Supervisor::on_joined(int rank, int world_rank, int world_size) {
  if (survives_) return Action::kNone;  // ranks change from generation to generation
  if (rank < 0 || rank >= plan_.size() || plan_.size() == 1) return Action::kNone;
  const auto place_of_rank = static_cast<size_t>(rank);
  if (world_rank == rank && world_size == plan_.size()) rank_joined_[place_of_rank] = true;
  if (rank_joined_[place_of_rank]) return Action::kNone;
  return fail(kExitLauncher,
              cat(place(rank), " is rank ", world_rank, " in a world of ", world_size,
                  " of its own, and not among this job's ", plan_.size(),
                  " ranks: look for what clears or overrides HOROVOD_RANK, HOROVOD_SIZE or "
                  "HOROVOD_STORE before its program begins (env -i, a script, another launcher)"),
              rank);
}

Supervisor::Action Supervisor::on_awaited() { return fail_late(); }

Supervisor::Action Supervisor::fail_late() {
  if (ending_ || !late_) return Action::kNone;
  return fail_rank(late_rank_, *late_);
}

void Supervisor::leave(int host) {
  if (is_done(host)) return;
  host_done_[static_cast<size_t>(host)] = true;
  --hosts_left_;
}

Supervisor::Action Supervisor::on_finished(int host) {
  leave(host);
  if (ending_ || survives_) return Action::kNone;
  for (const Slot& slot : plan_.slots) {
    if (slot.host != host || rank_done_[static_cast<size_t>(slot.rank)]) continue;
    return fail(kExitLauncher, cat(place(slot.rank), " ended without its agent saying how"));
  }
  return Action::kNone;
}

Supervisor::Action Supervisor::on_lost(int host, const Status& why) {
  leave(host);
  if (ending_) return Action::kNone;
  Failure failure{kExitLauncher, cat(host_name(host), " was lost: ", why.message())};
  if (goes_on(-1, host, failure)) return Action::kNone;
  if (silent_hosts_.contains(host)) {
    failure.sentence += cat("; before that, ", describe(held_.front().exit).sentence);
  }
  return fail(failure.exit_code, std::move(failure.sentence));
}

Supervisor::Action Supervisor::on_agent_ending(int host, const std::string& why) {
  if (ending_) return Action::kNone;
  Failure failure{kExitLauncher, cat(host_name(host), " was lost: ", why)};
  if (goes_on(-1, host, failure)) return Action::kNone;
  ended_by_ = SIGTERM;
  return fail(failure.exit_code, std::move(failure.sentence));
}

Supervisor::Action Supervisor::on_start_failed(int host, const Status& why) {
  return on_preparation_failed(host, why.with_context(cat(host_name(host), ": start")));
}

Supervisor::Action Supervisor::on_preparation_failed(int host, const Status& why) {
  leave(host);
  if (ending_) return Action::kNone;
  Failure failure{kExitLauncher, why.message()};
  if (goes_on(-1, host, failure)) return Action::kNone;
  return fail(failure.exit_code, std::move(failure.sentence));
}

Supervisor::Action Supervisor::on_timeout(double seconds) {
  return fail(kExitTimeout, cat("the job was ended after ", seconds, " s, as --timeout says"));
}

Supervisor::Action Supervisor::on_signal(int number) {
  ++signals_;
  // The signal also reached ranks or agents, which may have reported first.
  if (signals_ == 1 && ended_by_ == number) {
    exit_code_ = kExitSignal + number;
    sentence_ = cat("ended by ", signal_name(number));
    failed_rank_ = -1;
  }
  const Action action = fail(kExitSignal + number, cat("ended by ", signal_name(number)));
  return signals_ > 1 ? Action::kKill : action;
}

Supervisor::Action Supervisor::on_output_broken(int error_number, const std::string& file) {
  if (error_number == EPIPE) return fail(kExitSignal + SIGPIPE, "");
  const Status why = system_error(
      cat("cannot write the ranks' output to standard output, ", printable(file)), error_number);
  const bool is_full = error_number == ENOSPC || error_number == EDQUOT;
  return fail(kExitLauncher,
              cat(why.message(), is_full ? "; redirect it to a disk with room" : ""));
}

int Supervisor::living_ranks() const {
  return static_cast<int>(std::ranges::count_if(plan_.slots, [this](const Slot& slot) {
    return !rank_done_[static_cast<size_t>(slot.rank)] && !is_done(slot.host);
  }));
}

int Supervisor::exit_code() const { return exit_code_; }
std::string Supervisor::report() const { return sentence_; }

std::string Supervisor::killed_ranks() const {
  std::vector<int> ranks;
  std::set<int> hosts;
  for (const Slot& slot : plan_.slots) {
    if (signals_ > 1 || !rank_killed_[static_cast<size_t>(slot.rank)]) continue;
    ranks.push_back(slot.rank);
    hosts.insert(slot.host);
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return place(ranks[0]);
  return cat("ranks ", ranks_text(ranks), " on ",
             hosts.size() == 1 ? host_name(*hosts.begin()) : cat(hosts.size(), " hosts"));
}

}  // namespace hvd::launcher
