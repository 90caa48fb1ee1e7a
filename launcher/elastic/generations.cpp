#include "launcher/elastic/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

using std::chrono::seconds;

ProgramPolicy& Generations::policy() {
  if (core_.restarts_program()) return restart_program_;
  return elastic_run_;
}

void Generations::discovered(std::vector<Host> hosts, Time now) {
  core_.pool.discovered(std::move(hosts));
  if (core_.stage == JobStage::kUnknown) {
    core_.deadlines.launch_began(now);
    for (RankRun& rank : core_.hosts.ranks()) rank.to(PlaceState::kStarting);
    if (core_.limits.restarts_programs)
      restart_program_.assume_ranks();
    else
      core_.to(JobStage::kAsking);
  }
  consider(now);
}

void Generations::prepared(HostRun& host, Time now) {
  if (host.is_gone()) return;
  const bool is_held = core_.stage == JobStage::kAssumed;
  for (RankRun* rank : host.ranks()) {
    rank->advance(PlaceState::kPlanned, is_held ? PlaceState::kHeld : PlaceState::kStarting);
  }
  ElasticCore::note_start(host, now);
  if (!is_held) core_.actions.start_processes(host);
  consider(now);
}

void Generations::start_failed(HostRun& host, const std::string& sentence, Time now) {
  if (host.is_gone()) return;
  core_.drop_host(host);
  const auto wait = core_.pool.retry_later(host.name(), seconds(5), seconds(300), now).count();
  if (core_.limits.hosts_join()) {
    core_.actions.report(
        fmt::format("{}; the job goes on without it, and uses it again when an agent joins there, "
                    "in {} s at the earliest",
                    sentence, wait));
  } else {
    core_.actions.report(
        fmt::format("{}; the job goes on without it, and tries it again in {} s", sentence, wait));
  }
  consider(now);
}

void Generations::takes_part(Time now) {
  if (core_.stage == JobStage::kAsking) {
    core_.to(JobStage::kElastic);
    core_.deadlines.entered_elastic_run(now);
  }
  consider(now);
}

// Returns the process, or null if the number is not in the table, or if the process has not started or is gone.
RankRun* Generations::started(int64_t process) {
  if (!core_.hosts.has_rank(process)) return nullptr;
  RankRun& run = core_.hosts.rank(static_cast<int>(process));
  const bool has_started = may_move(run.place_state(), PlaceState::kAsking);
  return has_started ? &run : nullptr;
}

void Generations::runs(int64_t process, ElasticCall call) {
  if (RankRun* const run = started(process)) run->place().call = call;
}

void Generations::requested(int64_t process, const rendezvous::PlaceRequest& request, Time now) {
  RankRun* const run = started(process);
  if (run == nullptr || request.number <= run->place().request) return;
  if (core_.stage == JobStage::kAssumed) restart_program_.drop_assumption(now);
  run->to(PlaceState::kAsking);
  PlaceRecord& one = run->place();
  one.request = request.number;
  one.generation = request.generation;
  one.takes_any_place = request.from == rendezvous::PlaceRequestFrom::kElasticRun;
  if (request.from == rendezvous::PlaceRequestFrom::kInit || request.generation >= 0) {
    one.provisional.reset();
  }
  core_.repetition.committed(request.generation, request.commits);
  if (request.commits > RepeatedException::kFewCommits &&
      request.commits < rendezvous::kUncountedCommits)
    core_.pool.forget_failures();
  if (!core_.current || run->is_member()) core_.deadlines.asked(now);
  consider(now);
}

bool Generations::ended(int process, int exit_code, const std::string& sentence, Time now,
                        const std::string& exception) {
  RankRun& run = core_.hosts.rank(process);
  if (core_.is_over() || run.is_gone()) return true;
  if (exit_code == 0 && run.place().is_in_run()) {
    const std::string early = fmt::format(
        "{} exited with code 0 before it reported the end of hvd.elastic.run", run.describe());
    return ended(process, kExitLauncher, early, now);
  }
  if (exit_code == 0) {
    finished(run, now);
  } else if (run.is_member() && is_after_training({&run})) {
    run.go();
    note_after_training({&run}, exit_code, sentence, now);
  } else if (core_.stage == JobStage::kFinishing && run.is_member()) {
    core_.over(
        exit_code,
        fmt::format("{}; {} had exited with code 0", sentence, core_.training_end.finished()),
        process);
    return false;
  } else {
    policy().failed({process, exit_code, sentence, exception}, now);
  }
  consider(now);
  return true;
}

// Handles an exit with code 0. A process that was not a rank has done no work, and is replaced.
void Generations::finished(RankRun& process, Time now) {
  process.go();
  if (!core_.current || process.is_member()) {
    const bool is_running = core_.stage != JobStage::kFinishing;
    if (is_running && !restart_program_.has_suspect()) core_.to(JobStage::kFinishing);
    core_.training_end.finished(process, now);
  } else if (core_.stage != JobStage::kFinishing) {
    core_.actions.report(fmt::format("{} exited with code 0 before it was a rank; {}",
                                     process.describe(),
                                     core_.start_another_later(process.host().name(), now)));
  }
}

// Reports the loss of ranks that the training does not need. The job does not replace them.
void Generations::note_after_training(const Ranks& ranks, int exit_code,
                                      const std::string& sentence, Time now) {
  const auto returned =
      std::ranges::find_if(ranks, [](const RankRun* rank) { return rank->place().has_returned(); });
  if (returned != ranks.end())
    core_.training_end.failed(exit_code, sentence, (*returned)->number(), now);
  else
    core_.failure.note(exit_code, sentence, ranks.front()->number());
  if (live_members(core_.hosts) == 0) return;
  core_.actions.report(cat(sentence,
                           returned != ranks.end() ? " after training" : " at the end of training",
                           "; the other ranks go on"));
}

bool Generations::host_lost(HostRun& host, const std::string& sentence, Time now) {
  if (core_.is_over() || host.is_gone()) return true;
  if (!host.has_process()) {
    host.to(HostUse::kGone);
    return true;
  }
  Ranks ranks;
  std::ranges::copy_if(host.ranks(), std::back_inserter(ranks),
                       [](const RankRun* rank) { return rank->is_member() && !rank->is_gone(); });
  const bool is_trained = is_after_training(ranks);
  const bool fails_job = !ranks.empty() && !is_trained && core_.stage == JobStage::kFinishing;
  if (!is_trained && (!ranks.empty() || !core_.current)) {
    core_.failure.note(kExitLauncher, sentence, -1);
  }
  core_.drop_host(host);
  const std::string after = core_.after_loss(host, now);
  const std::string consequence = after.empty() ? sentence : fmt::format("{}; {}", sentence, after);
  if (is_trained)
    note_after_training(ranks, kExitLauncher, sentence, now);
  else if (!ranks.empty())
    policy().host_lost(sentence, consequence, now);
  else
    core_.actions.report(consequence);
  consider(now);
  return !fails_job;
}

// Returns whether the training does not need these ranks. After a rank has exited with code 0, no further generation
// can begin, so a rank that still trains cannot continue.
bool Generations::is_after_training(const Ranks& ranks) const {
  if (core_.training_end.is_behind(ranks)) return true;
  return core_.stage == JobStage::kFinishing &&
         std::ranges::any_of(ranks, [](const RankRun* rank) { return rank->place().is_in_run(); });
}

void Generations::ranks_ended(const HostRun& host, Time now) {
  core_.pool.retry_at(host.name(), now);
  consider(now);
}

bool Generations::can_spare(const std::set<std::string>& hosts) const {
  // Keep a rank that has finished training: it may be the only rank that saves the model.
  if (core_.stage == JobStage::kFinishing || core_.training_end.has_come()) return false;
  const bool needs_state = core_.current && !core_.restarts_program();
  if (needs_state && !core_.capacity.has_state_without(hosts)) return false;
  return core_.capacity.offered_without(hosts) >= core_.limits.least;
}

Result<std::string> Generations::resize(int ranks, Time now) {
  Result<std::string> sentence = changes_.resize(ranks, policy(), now);
  if (sentence.ok()) consider(now);
  return sentence;
}

Result<std::string> Generations::remove_host(const std::string& name, Time now) {
  Result<std::string> sentence = changes_.remove_host(name, policy(), now);
  if (sentence.ok()) consider(now);
  return sentence;
}

Result<std::string> Generations::remove_rank(int64_t rank, Time now) {
  Result<std::string> sentence = changes_.remove_rank(rank, policy(), now);
  if (sentence.ok()) consider(now);
  return sentence;
}

void Generations::host_leaves(HostRun& host, const std::string& why, double seconds, Time now) {
  const bool is_ending = core_.is_over() || core_.stage == JobStage::kFinishing;
  if (is_ending || host.is_gone()) return;
  changes_.host_leaves(host, why, seconds, policy(), now);
  consider(now);
}

void Generations::consider(Time now) {
  while (decide(now)) {
    core_.end_left_hosts();
    changes_.let_hosts_go(policy(), now);
  }
}

// Returns whether a generation has begun.
bool Generations::decide(Time now) {
  core_.next = Time::max();
  if (core_.is_over()) return false;
  if (core_.stage == JobStage::kFinishing) {
    finish(now);
    return false;
  }
  remind_of_end(now);
  if (restart_program_.awaits_cause(now)) return false;
  if (const auto suspect = restart_program_.take_suspect()) {
    policy().settle(suspect->failure, suspect->since, now);
    if (core_.is_over()) return false;
  }
  core_.mark_leaving();
  give_up_silent(now);
  if (core_.is_over()) return false;
  if (!has_live_rank()) {
    if (fails_after_training()) return false;
    const FirstFailure& failure = core_.failure;
    // If the failure's sentence promises a restart, add that the job cannot continue.
    const bool is_tried_again = core_.pool.next_start(now).has_value();
    core_.over(failure.exit_code(),
               !failure.is_noted() ? kNoState
               : is_tried_again    ? fmt::format("{}; {}: start the job again from its checkpoint",
                                                 failure.sentence(), kNoState)
                                   : failure.sentence());
    return false;
  }
  return policy().decide(now);
}

// Abandons ranks that have not requested the next generation in time while other ranks wait for it.
void Generations::give_up_silent(Time now) {
  const auto found = core_.deadlines.silent(now);
  for (const auto& [number, sentence] : found.late) {
    if (core_.is_over()) return;
    RankRun& process = core_.hosts.rank(number);
    if (process.is_gone()) continue;
    policy().failed({.process = number, .exit_code = kExitLauncher, .sentence = sentence}, now);
    core_.end_alone(process);
  }
  core_.report_all(found.reminders);
  core_.wake_at(found.next);
}

// Returns whether a rank is alive. Before the first generation, any process counts as a rank.
bool Generations::has_live_rank() const {
  if (core_.current && live_members(core_.hosts) == 0) return false;
  return live_processes(core_.hosts) > 0 || core_.hosts.size() == 0;
}

// Ends the hosts without ranks. Call after a rank has ended its work.
void Generations::finish(Time now) {
  check_unfinished(now);
  for (HostRun& host : core_.hosts.hosts()) {
    const bool works = std::ranges::any_of(host.ranks(), [this](const RankRun* rank) {
      return rank->place_state() == PlaceState::kMember || (!core_.current && rank->is_coming());
    });
    if (host.has_process() && !works) core_.drop_host(host);
  }
  if (live_members(core_.hosts) > 0)
    remind_of_end(now);
  else
    fails_after_training();
}

void Generations::remind_of_end(Time now) {
  if (const auto sentence = core_.training_end.reminder(now)) core_.actions.report(*sentence);
  core_.wake_at(core_.training_end.next());
}

// Ends the job if a rank failed after training.
bool Generations::fails_after_training() {
  const TrainingEnd& end = core_.training_end;
  if (!end.failure().is_noted()) return false;
  core_.over(end.failure().exit_code(), end.sentence(), end.failure().process());
  return true;
}

// Ends ranks that request another generation after a rank has finished: the generation cannot begin.
void Generations::check_unfinished(Time now) {
  std::vector<std::string> left;
  Ranks asking;
  for (RankRun* rank : core_.hosts.members()) {
    if (rank->is_gone() || !rank->place().is_in_run()) continue;
    left.push_back(rank->describe());
    if (rank->place_state() == PlaceState::kAsking) asking.push_back(rank);
  }
  if (asking.empty()) return;
  const std::string because = fmt::format(
      "{} exited with code 0, but {} {} not finished training; the remaining ranks ask for another "
      "generation, which "
      "cannot begin after a rank has finished",
      core_.training_end.finished(), join(left, ", "), left.size() == 1 ? "has" : "have");
  // If no rank has failed, the ranks have left hvd.elastic.run at different steps.
  if (!core_.failure.is_noted()) core_.training_end.failed(kExitLauncher, because, -1, now);
  for (RankRun* rank : asking) core_.end_process(*rank);
}

}  // namespace hvd::launcher
