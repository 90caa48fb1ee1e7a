#include "launcher/job/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/observe/rules/silent_hosts.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/report.h"

namespace hvd::launcher {
namespace {

std::string because_of(const std::string& cause, const std::string& failure) {
  return cat(cause, "; ", failure, " because of it");
}

}  // namespace

Supervisor::Supervisor(HostTable& hosts, bool waits) : hosts_(hosts), waits_(waits) {}

std::string Supervisor::place(int rank) const {
  return cat("rank ", rank, " on ", host_name(hosts_.rank(rank).host().number()));
}

std::string Supervisor::host_name(int host) const { return cat("host ", hosts_.host(host).name()); }

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
  const auto running = std::ranges::count_if(hosts_.ranks(), std::not_fn(&RankRun::is_over));
  if (running > 0) {
    news_ = cat(failure.sentence, "; --on-failure wait lets the other ", running,
                running == 1 ? " rank continue" : " ranks continue");
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
                " was killed by the kernel's out-of-memory killer (signal 9); use less memory "
                "per rank, fewer ranks on that host, or a host with more memory")};
  }
  std::string why = exit.out_of_memory
                        ? "; the kernel's out-of-memory killer has ended a process on that host"
                        : "";
  if (exit.master_port_user) {
    why += cat(
        "; user ", *exit.master_port_user,
        " of that host has taken the job's MASTER_PORT, so that other ranks may have connected to "
        "a program of that user; start the job again to get another port");
  }
  if (exit.cpu_seconds != 0) {
    why += cat("; it has used up the ", exit.cpu_seconds,
               " s of processor time that ulimit -t allows on that host");
  }
  if (exit.signal != 0) {
    return {kExitSignal + exit.signal, cat(place(exit.rank), " was killed by signal ", exit.signal,
                                           " (", signal_name(exit.signal), ")", why)};
  }
  return {exit.code, cat(place(exit.rank), " exited with code ", exit.code, why)};
}

std::string Supervisor::describe(const Loss& loss) const {
  std::vector<std::string> names;
  for (const int host : loss.hosts) names.push_back(hosts_.host(host).name());
  const bool is_one = names.size() == 1;
  std::string why = loss.why;
  constexpr std::string_view kOne = "the host ";
  if (!is_one && why.starts_with(kOne)) why.replace(0, kOne.size(), "they ");
  return cat(hosts_text(std::move(names)), is_one ? " was lost: " : " were lost: ", why,
             loss.before);
}

// Returns a clause about the ranks that have ended with success: "; rank 1 on host b had exited with code 0". The
// failed rank may have needed them.
std::string Supervisor::ended_before() const {
  std::vector<int> ranks;
  for (const RankRun& rank : hosts_.ranks()) {
    if (rank.has_succeeded()) ranks.push_back(rank.number());
  }
  if (ranks.empty()) return "";
  return cat("; ", ranks.size() == 1 ? place(ranks[0]) : cat("ranks ", ranks_text(ranks)),
             " had exited with code 0");
}

Supervisor::Action Supervisor::on_awaited_rank_ended(int rank, const std::vector<int>& waiting,
                                                     const char* call) {
  const bool is_one = waiting.size() == 1;
  return fail(
      kExitLauncher,
      cat(place(rank), hosts_.rank(rank).has_succeeded() ? " exited with code 0" : " has ended",
          ", and ", is_one ? "rank " : "ranks ", ranks_text(waiting), is_one ? " waits" : " wait",
          " for it in ", call),
      rank);
}

Supervisor::Action Supervisor::on_exit(const RankExit& exit, const std::optional<LeftBy>& left_by,
                                       const std::string& meanwhile) {
  if (!hosts_.has_rank(exit.rank)) return Action::kNone;
  RankRun& rank = hosts_.rank(exit.rank);
  if (rank.is_over() || rank.state() == RankState::kPlanned) return Action::kNone;
  rank.ended(exit);
  // A rank that ends because the job ends is not the cause.
  if (ending_) return Action::kNone;
  if (survives_) {
    const bool is_success = exit.code == 0 && exit.signal == 0;
    Failure failure = is_success ? Failure{0, ""} : describe(exit);
    if (goes_on(exit.rank, rank.host().number(), failure) || is_success) return Action::kNone;
    return fail(failure.exit_code, std::move(failure.sentence), exit.rank);
  }
  if (exit.code == 0 && exit.signal == 0) {
    if (exit.rank != awaited_) return Action::kNone;
    // The exit of the awaited process may have reset its connections: the cause is then that it left.
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
  const bool has_cause = left_by && !left_by->cause.empty();
  if (has_cause) failed_alike_.insert(exit.rank);
  if (!waits_) ended_by_ = exit.signal;
  if (left_by && hosts_.has_rank(left_by->rank) && left_by->rank != exit.rank)
    return await_peer(exit.rank, std::move(failure), *left_by);
  if (has_cause)
    failure.sentence = because_of(left_by->cause, failure.sentence);
  else if (!waits_)
    failure.sentence += ended_before();
  return fail_rank(exit.rank, std::move(failure));
}

Supervisor::Action Supervisor::await_peer(int rank, Failure failure, const LeftBy& peer) {
  // Only the awaited rank can name another cause: a third rank may have made it leave.
  if (late_ && rank != awaited_) return Action::kNone;
  const bool has_ended = hosts_.rank(peer.rank).is_over();
  late_if_left_ = cat(failure.sentence, ", after rank ", peer.rank, " had left the job");
  // The peer may have failed for the same cause as this rank.
  const bool has_left = has_ended && peer.rank != late_rank_ && !failed_alike_.contains(peer.rank);
  failure.sentence =
      peer.cause.empty() || has_left ? late_if_left_ : because_of(peer.cause, failure.sentence);
  late_ = std::move(failure);
  late_rank_ = rank;
  awaited_ = peer.rank;
  return has_ended ? fail_late() : Action::kAwait;
}

bool Supervisor::holds(const RankFailure& failure) {
  if (!is_silent_) return false;
  if (held_.empty()) {
    const HostRun& own = hosts_.rank(failure.exit.rank).host();
    for (const HostRun& host : hosts_.hosts()) {
      if (&host != &own && !host.is_over() && is_silent_(host.number()))
        silent_hosts_.insert(host.number());
    }
  }
  if (silent_hosts_.empty()) return false;
  held_.push_back(failure);
  return true;
}

Supervisor::Action Supervisor::on_answer(int host) {
  if (silent_hosts_.erase(host) == 0 || !silent_hosts_.empty()) return Action::kNone;
  Action action = Action::kNone;
  std::vector<RankFailure> failures = std::exchange(held_, {});
  // Judge failures without `left_by` first, because the others may be their consequences.
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

Supervisor::Action Supervisor::end_job(int exit_code, const std::string& sentence, int rank) {
  return fail(exit_code, sentence, rank);
}

Supervisor::Action Supervisor::on_joined(int rank, int world_rank, int world_size) {
  if (survives_) return Action::kNone;  // the ranks of an elastic job change
  if (!hosts_.has_rank(rank) || hosts_.size() == 1) return Action::kNone;
  if (world_rank == rank && world_size == hosts_.size()) hosts_.rank(rank).enter_world();
  if (hosts_.rank(rank).has_been_in_world()) return Action::kNone;
  return fail(kExitLauncher,
              cat(place(rank), " is rank ", world_rank, " in a world of ", world_size,
                  " of its own, and not among this job's ", hosts_.size(),
                  " ranks: look for what clears or overrides HOROVOD_RANK, HOROVOD_SIZE or "
                  "HOROVOD_STORE before its program begins (env -i, a script, another launcher)"),
              rank);
}

Supervisor::Action Supervisor::on_awaited() { return fail_late(); }

Supervisor::Action Supervisor::fail_late() {
  if (ending_ || !late_) return Action::kNone;
  return fail_rank(late_rank_, *late_);
}

void Supervisor::lose(int host) {
  HostRun& run = hosts_.host(host);
  if (!run.is_over()) run.to(HostState::kLost, HostCause::kLost);
}

Supervisor::Action Supervisor::on_finished(int host) {
  HostRun& run = hosts_.host(host);
  if (!run.is_over()) run.to(HostState::kDone, HostCause::kFinished);
  if (ending_ || survives_) return Action::kNone;
  for (const RankRun* rank : run.ranks()) {
    if (rank->is_over()) continue;
    return fail(kExitLauncher,
                cat(place(rank->number()), " ended, but its agent did not report how"));
  }
  return Action::kNone;
}

Supervisor::Action Supervisor::on_lost(int host, const Status& why) {
  lose(host);
  if (loss_ && loss_->why == why.message() && sentence_ == describe(*loss_)) {
    loss_->hosts.push_back(host);
    std::ranges::sort(loss_->hosts);
    sentence_ = describe(*loss_);
  }
  if (ending_) return Action::kNone;
  Loss loss{{host}, why.message(), ""};
  if (goes_on(-1, host, {kExitLauncher, describe(loss)})) return Action::kNone;
  if (silent_hosts_.contains(host)) {
    loss.before = cat("; before that, ", describe(held_.front().exit).sentence);
  }
  loss_ = std::move(loss);
  return fail(kExitLauncher, describe(*loss_));
}

Supervisor::Action Supervisor::on_agent_ending(int host, const std::string& why) {
  HostRun& run = hosts_.host(host);
  // Keep the state of a host that the launcher has abandoned or already ordered to end, with a deadline.
  if (run.state() < HostState::kEnding) run.to(HostState::kEnding, HostCause::kAgentEnds);
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
  lose(host);
  if (ending_) return Action::kNone;
  Failure failure{kExitLauncher, why.message()};
  if (goes_on(-1, host, failure)) return Action::kNone;
  return fail(failure.exit_code, std::move(failure.sentence));
}

Supervisor::Action Supervisor::on_signal(int number) {
  ++signals_;
  // The signal also reached ranks or agents, and their reports may have arrived first.
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
              cat(why.message(), is_full ? "; redirect it to a disk with free space" : ""));
}

void Supervisor::on_script_ended(const std::string& script) {
  const bool is_of_host = failed_rank_ < 0 && exit_code_ == kExitLauncher;
  const bool is_by_signal = signals_ > 0 || ended_by_ == SIGTERM || ended_by_ == SIGKILL;
  if (exit_code_ == 0 || !(is_of_host || is_by_signal)) return;
  sentence_ = cat(script,
                  " has ended, and this job with it; let the script wait for the job by "
                  "horovodrun wait, or leave --detach out");
  failed_rank_ = -1;
}

int Supervisor::exit_code() const { return exit_code_; }
std::string Supervisor::report() const { return sentence_; }

std::string Supervisor::killed_ranks() const {
  std::vector<int> ranks;
  std::set<int> hosts;
  for (const RankRun& rank : hosts_.ranks()) {
    if (signals_ > 1 || rank.state() != RankState::kKilled) continue;
    ranks.push_back(rank.number());
    hosts.insert(rank.host().number());
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return place(ranks[0]);
  return cat("ranks ", ranks_text(ranks), " on ",
             hosts.size() == 1 ? host_name(*hosts.begin()) : cat(hosts.size(), " hosts"));
}

}  // namespace hvd::launcher
