#include "launcher/elastic/program_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>

#include "launcher/plan/exit_codes.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

// The maximum number of restarts after failures, unless the user sets another number.
constexpr int kRestarts = 3;

// Returns whether another rank's exit may have caused this one: libraries then raise an exception, or abort.
bool may_follow_another(int exit_code) {
  return exit_code < kExitSignal || exit_code == kExitSignal + SIGABRT ||
         exit_code == kExitSignal + SIGPIPE;
}

}  // namespace

void RestartProgram::assume_ranks() {
  Generation generation;
  generation.number = core_.history.generation;
  for (RankRun& process : core_.hosts.ranks()) {
    generation.members.push_back({.host = process.host().name(),
                                  .slot = process.slot().local_rank,
                                  .incarnation = process.number(),
                                  .is_new = true});
    process.to(PlaceState::kMember);
    process.place().generation = generation.number;
  }
  core_.set_current(std::move(generation));
  core_.to(JobStage::kAssumed);
}

void RestartProgram::drop_assumption(Time now) {
  core_.to(JobStage::kAsking);
  core_.set_current({});
  std::set<int> held;
  for (RankRun& process : core_.hosts.ranks()) {
    if (process.place_state() == PlaceState::kHeld)
      held.insert(process.host().number());
    else if (process.place_state() != PlaceState::kMember)
      continue;
    process.to(PlaceState::kStarting);
    process.place().generation = -1;
  }
  for (const int number : held) {
    HostRun& host = core_.hosts.host(number);
    ElasticCore::note_start(host, now);
    core_.actions.start_processes(host);
  }
}

void RestartProgram::failed(const ProcessFailure& failure, Time now) {
  RankRun& process = core_.hosts.rank(failure.process);
  process.go();
  if (!process.is_member()) {
    const std::string sentence = core_.follow_up(failure, false, now);
    if (live_processes(core_.hosts) > 0) core_.actions.report(sentence);
    return;
  }
  if (!may_follow_another(failure.exit_code)) {
    suspect_.reset();
    return settle(failure, now, now);
  }
  // The cause may be a lost host, or a rank that the kernel killed. Its report then arrives later.
  if (!suspect_) suspect_ = {failure, now};
  if (awaits_cause(now)) return;
  const Suspect first = *take_suspect();
  settle(first.failure, first.since, now);
}

bool RestartProgram::awaits_cause(Time now) {
  if (!suspect_) return false;
  const HostRun& host = core_.hosts.rank(suspect_->failure.process).host();
  const bool has_others = std::ranges::any_of(core_.hosts.members(), [&host](const RankRun* rank) {
    return &rank->host() != &host && !rank->is_gone();
  });
  const Time when = suspect_->since + duration_of(core_.limits.cause_seconds);
  if (now >= when || !has_others) return false;
  core_.wake_at(when);
  return true;
}

void RestartProgram::settle(const ProcessFailure& failure, Time since, Time now) {
  const bool is_host_sound = may_follow_another(failure.exit_code);
  const std::string sentence = core_.follow_up(failure, is_host_sound, now);
  restart_after_failure(sentence, failure.exit_code, since, now);
}

void RestartProgram::host_lost(const std::string&, const std::string& consequence, Time now) {
  suspect_.reset();
  restart(fmt::format("{}; no rank has entered hvd.elastic.run, so all of them start again",
                      consequence),
          now);
}

void RestartProgram::restart_after_failure(const std::string& sentence, int exit_code, Time since,
                                           Time now) {
  const FirstFailure& failure = core_.failure;
  const GenerationLimits& limits = core_.limits;
  // A rank that fails early would most likely fail again, for example because of an import, a path or a setting.
  if (!limits.most_restarts && exit_code < kExitSignal && since < core_.deadlines.end_of_entry()) {
    return core_.over(
        failure.exit_code(),
        fmt::format("{}; the ranks are not started again after a failure within {:g} s of their "
                    "start (--start-timeout) unless --max-restarts is given",
                    failure.sentence(), limits.return_seconds));
  }
  const int most = limits.most_restarts.value_or(kRestarts);
  int& restarts = core_.history.restarts;
  if (most == 0) return core_.over(failure.exit_code(), failure.sentence());
  if (restarts >= most) {
    return core_.over(
        failure.exit_code(),
        fmt::format("{}; the job has been restarted {} {}, and may not be restarted again "
                    "(--max-restarts)",
                    failure.sentence(), restarts, restarts == 1 ? "time" : "times"));
  }
  ++restarts;
  restart(fmt::format("{}; no rank has entered hvd.elastic.run, so all of them start again "
                      "(restart {} of {})",
                      sentence, restarts, most),
          now);
}

// Ends the launch. The next launch uses the hosts that are available then.
void RestartProgram::restart(const std::string& why, Time now) {
  const FirstFailure& failure = core_.failure;
  const int slots = core_.capacity.offered();
  if (slots < core_.limits.least && !core_.may_grow()) {
    return core_.over(failure.exit_code(),
                      failure.before(fmt::format(
                          "the job needs at least {} (--min-np), and its hosts have slots for {}",
                          count_of_ranks(core_.limits.least), slots)));
  }
  if (!core_.may_reset(now)) return core_.end_by_reset_limit();
  core_.count_reset(
      failure.is_noted() ? failure.sentence() : "the program started again with other ranks", now);
  JobHistory& history = core_.history;
  history.generation = core_.hosts.generation() + 1;
  history.failure = failure.sentence();
  history.failure_code = failure.is_noted() ? failure.exit_code() : 0;
  history.hosts.clear();
  for (const RankRun* rank : core_.hosts.members()) history.hosts.push_back(rank->host().name());
  core_.actions.report(why);
  core_.to(JobStage::kOver);
  core_.actions.restart();
}

bool RestartProgram::decide(Time now) {
  core_.end_slow(now);
  core_.drop_surplus();
  core_.start_hosts(now);
  change_ranks(now);
  return !core_.is_over() && next_.form(now);
}

// Returns whether processes are ready that a restart would make ranks.
bool RestartProgram::has_new_slots(Time now) {
  const auto is_ready = [this](const RankRun& one) {
    return !one.is_member() && core_.capacity.has_place_for(one);
  };
  if (std::ranges::none_of(core_.hosts.ranks(), is_ready)) {
    core_.ready_since.reset();
    return false;
  }
  return core_.has_gathered(std::ranges::any_of(core_.hosts.ranks(), &RankRun::is_coming), now);
}

// Restarts the program with other ranks, once its ranks have had time to enter hvd.elastic.run.
void RestartProgram::change_ranks(Time now) {
  int32_t updates = core_.notice.updates() | core_.departures();
  if (has_new_slots(now)) updates |= rendezvous::kHostsAdded;
  const Time when = core_.deadlines.end_of_entry();
  if (updates != rendezvous::kHostsUnchanged && now >= when) {
    const bool is_growth = updates == rendezvous::kHostsAdded;
    return restart(
        fmt::format(
            "{}; no rank has entered hvd.elastic.run, so all of them start again",
            is_growth ? "the slots for more ranks are ready" : "ranks are to leave the job"),
        now);
  }
  if (updates != rendezvous::kHostsUnchanged) core_.wake_at(when);
  if (core_.stage != JobStage::kAssumed) core_.notify_ranks(updates, now);
}

std::string RestartProgram::when_they_leave(const std::string& whose, Time now) const {
  const Time last = core_.deadlines.end_of_entry();
  if (now >= last) {
    return "at once, and all ranks start again, since none has entered hvd.elastic.run";
  }
  return fmt::format(
      "when {} next commit; if no rank enters hvd.elastic.run within {} s, all of them start again "
      "then",
      whose, std::chrono::ceil<seconds>(last - now).count());
}

std::string RestartProgram::when_they_come() const {
  return "when the slots for the new ones are ready";
}

std::string RestartProgram::until_host_ends(int64_t seconds) const {
  return fmt::format("it ends in {} s at the latest (--leave-grace)", seconds);
}

void ElasticRun::failed(const ProcessFailure& failure, Time now) {
  RankRun& process = core_.hosts.rank(failure.process);
  if (process.is_member() && core_.stage != JobStage::kFinishing) {
    core_.repetition.failed(failure.exception, failure.exit_code,
                            {.process = failure.process,
                             .slot = process.slot().local_rank,
                             .generation = core_.hosts.generation(),
                             .host = process.host().name(),
                             .whose = process.describe(),
                             .sentence = failure.sentence});
  }
  process.go();
  settle(failure, now, now);
}

void ElasticRun::settle(const ProcessFailure& failure, Time, Time now) {
  const bool was_member = core_.hosts.rank(failure.process).is_member();
  const std::string sentence = core_.follow_up(failure, false, now);
  if (live_processes(core_.hosts) > 0 && core_.stage != JobStage::kFinishing) {
    core_.actions.report(sentence);
  }
  if (was_member) announce_loss(failure.sentence, now);
}

void ElasticRun::host_lost(const std::string& sentence, const std::string& consequence, Time now) {
  core_.actions.report(consequence);
  announce_loss(sentence, now);
}

void ElasticRun::announce_loss(const std::string& sentence, Time now) {
  core_.deadlines.rank_lost(now);
  core_.actions.notify_loss(core_.hosts.generation(), sentence);
}

bool ElasticRun::decide(Time now) {
  check_unprepared(now);
  check_unaware(now);
  if (core_.is_over()) return false;
  core_.end_slow(now);
  core_.drop_surplus();
  plan_newcomers(now);
  core_.start_hosts(now);
  announce_changes(now);
  return next_.form(now);
}

// Ends new processes that have provisional places but take too long to prepare, while the ranks train.
void ElasticRun::check_unprepared(Time now) {
  if (core_.stage != JobStage::kElastic) return;
  const auto found = core_.deadlines.unprepared(now);
  for (const auto& [number, sentence] : found.late) {
    RankRun& process = core_.hosts.rank(number);
    if (process.is_gone()) continue;
    core_.end_process(process);
    failed({.process = number, .exit_code = kExitLauncher, .sentence = sentence}, now);
  }
  core_.report_all(found.reminders);
  core_.wake_at(found.next);
}

// Reports ranks that have not noticed a loss. Ends the job if no rank notices it in time.
void ElasticRun::check_unaware(Time now) {
  const auto found = core_.deadlines.unaware(now, core_.failure.sentence());
  if (found.end) {
    return core_.over(core_.failure.exit_code(), core_.failure.before(*found.end));
  }
  core_.report_all(found.reminders);
  core_.wake_at(found.next);
}

// Collects the processes that request to join while ranks train, and sends them their future places.
void ElasticRun::plan_newcomers(Time now) {
  if (!has_survivor(core_.hosts)) return;
  renew_plan();
  if (core_.joining.generation() == nullptr) {
    std::set<int> ready;
    for (const RankRun& process : core_.hosts.ranks()) {
      if (!process.is_member() && core_.capacity.has_place_for(process))
        ready.insert(process.number());
    }
    if (ready.empty()) return core_.ready_since.reset();
    const bool may_come = std::ranges::any_of(core_.hosts.ranks(), &RankRun::is_coming);
    if (!core_.has_gathered(may_come, now)) return;
    core_.ready_since.reset();
    core_.deadlines.plan_made();
    core_.joining.set(with_newcomers(next_.plan_joining(ready)));
  }
  for (const auto& [process, answer] : core_.joining.answer_places(now)) {
    core_.actions.answer(*process, answer);
    core_.wake_at(now + Deadlines::kUntilNamed);
  }
}

void ElasticRun::renew_plan() {
  while (core_.joining.generation() != nullptr) {
    const std::set<int> newcomers = core_.joining.newcomers();
    std::optional<Generation> renewed = with_newcomers(next_.plan_joining(newcomers));
    if (next_.start_misplaced_again(newcomers, renewed.value_or(Generation()))) continue;
    return core_.joining.set(std::move(renewed));
  }
}

// Notifies the ranks of changes, so that they request their next places at their next commit.
void ElasticRun::announce_changes(Time now) {
  if (!core_.current) return;
  int32_t updates = core_.notice.updates() | core_.departures();
  if (core_.joining.is_prepared()) updates |= rendezvous::kHostsAdded;
  core_.notify_ranks(updates, now);
}

std::string ElasticRun::when_they_leave(const std::string& whose, Time) const {
  return fmt::format("when {} next commit", whose);
}

std::string ElasticRun::when_they_come() const { return "when the new ones have started"; }

std::string ElasticRun::until_host_ends(int64_t seconds) const {
  return fmt::format("its ranks have {} s for their next commit (--leave-grace)", seconds);
}

}  // namespace hvd::launcher
