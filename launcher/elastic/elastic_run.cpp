#include "launcher/elastic/elastic_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

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

// Reports ranks that have not noticed a loss; ends the job if no rank notices the loss in time.
void ElasticRun::check_unaware(Time now) {
  const auto found = core_.deadlines.unaware(now, core_.failure.sentence());
  if (found.end) {
    return core_.over(core_.failure.exit_code(), core_.failure.before(*found.end));
  }
  core_.report_all(found.reminders);
  core_.wake_at(found.next);
}

// While ranks train, collects the processes that request to join, and sends them their future places.
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

// Renews the plan for the current ranks and newcomers.
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
