#include "launcher/elastic/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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
    if (core_.limits.restarts_programs)
      restart_program_.assume_ranks();
    else
      core_.to(JobStage::kAsking);
  }
  consider(now);
}

void Generations::add(const HostRun& host) {
  const bool is_first = core_.stage == JobStage::kUnknown;
  core_.table.hosts.emplace(host.number(), host);
  for (const RankRun* rank : host.ranks()) {
    core_.table.processes[rank->number()] = {
        .host = host.number(),
        .slot = rank->slot().local_rank,
        .phase = is_first ? ProcessPhase::kStarting : ProcessPhase::kPlanned};
  }
}

void Generations::prepared(int host, Time now) {
  JobHost& state = core_.table.hosts.at(host);
  if (state.use == HostUse::kGone) return;
  const bool is_held = core_.stage == JobStage::kAssumed;
  for (const RankRun* rank : state.run.ranks()) {
    ProcessPhase& phase = core_.table.processes.at(rank->number()).phase;
    if (phase == ProcessPhase::kPlanned)
      phase = is_held ? ProcessPhase::kHeld : ProcessPhase::kStarting;
  }
  core_.note_start(host, now);
  if (!is_held) core_.actions.start_processes(host);
  consider(now);
}

void Generations::start_failed(int host, const std::string& sentence, Time now) {
  JobHost& state = core_.table.hosts.at(host);
  if (state.use == HostUse::kGone) return;
  core_.drop_host(state);
  const auto wait = core_.pool.retry_later(state.name(), seconds(5), seconds(300), now).count();
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

void Generations::runs(int process, bool is_inside, bool has_raised) {
  if (!core_.table.is_live(process)) return;
  JobProcess& one = core_.table.processes.at(process);
  one.is_in_run = is_inside;
  one.has_returned = !is_inside && !has_raised;
}

void Generations::requested(int process, const rendezvous::PlaceRequest& request, Time now) {
  ProcessTable& table = core_.table;
  if (!table.is_live(process)) return;
  JobProcess& one = table.processes.at(process);
  if (request.number <= one.request) return;
  if (core_.stage == JobStage::kAssumed) restart_program_.drop_assumption(now);
  one.phase = ProcessPhase::kAsking;
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
  if (!table.current || table.is_member(process)) core_.deadlines.asked(now);
  consider(now);
}

bool Generations::ended(int process, int exit_code, const std::string& sentence, Time now,
                        const std::string& exception) {
  const ProcessTable& table = core_.table;
  if (core_.is_over() || !table.is_live(process)) return true;
  if (exit_code == 0 && table.processes.at(process).is_in_run) {
    const std::string early =
        fmt::format("{} exited with code 0 before it reported the end of hvd.elastic.run",
                    table.whose(process));
    return ended(process, kExitLauncher, early, now);
  }
  if (exit_code == 0) {
    finished(process, now);
  } else if (table.is_member(process) && is_after_training({process})) {
    ended_after_training(process, exit_code, sentence, now);
  } else if (core_.stage == JobStage::kFinishing && table.is_member(process)) {
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

// A process has ended with exit code 0. One that was no rank yet has done no work.
void Generations::finished(int process, Time now) {
  ProcessTable& table = core_.table;
  table.processes.at(process).phase = ProcessPhase::kGone;
  if (!table.current || table.is_member(process)) {
    const bool is_running = core_.stage != JobStage::kFinishing;
    if (is_running && !restart_program_.has_suspect()) core_.to(JobStage::kFinishing);
    core_.training_end.finished(process, now);
  } else if (core_.stage != JobStage::kFinishing) {
    const std::string& host = table.host_of(process).name();
    core_.actions.report(fmt::format("{} exited with code 0 before it was a rank; {}",
                                     table.whose(process), core_.start_another_later(host, now)));
  }
}

// No rank needs this one for training, and none is started for it.
void Generations::ended_after_training(int process, int exit_code, const std::string& sentence,
                                       Time now) {
  JobProcess& one = core_.table.processes.at(process);
  one.phase = ProcessPhase::kGone;
  note_after_training({process}, exit_code, sentence, now);
}

void Generations::note_after_training(const std::vector<int>& ranks, int exit_code,
                                      const std::string& sentence, Time now) {
  const auto returned = std::ranges::find_if(
      ranks, [this](int rank) { return core_.table.processes.at(rank).has_returned; });
  if (returned != ranks.end())
    core_.training_end.failed(exit_code, sentence, *returned, now);
  else
    core_.failure.note(exit_code, sentence, ranks.front());
  if (core_.table.live_members() == 0) return;
  core_.actions.report(cat(sentence,
                           returned != ranks.end() ? " after training" : " at the end of training",
                           "; the other ranks go on"));
}

bool Generations::host_lost(int host, const std::string& sentence, Time now) {
  ProcessTable& table = core_.table;
  JobHost& state = table.hosts.at(host);
  if (core_.is_over() || state.use == HostUse::kGone) return true;
  if (!table.has_live_process(state)) {
    state.use = HostUse::kGone;
    return true;
  }
  const std::vector<int> ranks = table.live_members_of(state);
  const bool is_trained = is_after_training(ranks);
  const bool fails_job = !ranks.empty() && !is_trained && core_.stage == JobStage::kFinishing;
  if (!is_trained && (!ranks.empty() || !table.current)) {
    core_.failure.note(kExitLauncher, sentence, -1);
  }
  core_.drop_host(state);
  const std::string after = core_.after_loss(state, now);
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

// Whether the loss of these ranks costs the training nothing. After the end of a rank, a rank that trains cannot go on
// in another generation.
bool Generations::is_after_training(const std::vector<int>& ranks) const {
  if (core_.training_end.is_behind(ranks)) return true;
  return core_.stage == JobStage::kFinishing && std::ranges::any_of(ranks, [this](int rank) {
           return core_.table.processes.at(rank).is_in_run;
         });
}

void Generations::ranks_ended(const HostRun& host, Time now) {
  core_.pool.retry_at(host.name(), now);
  consider(now);
}

bool Generations::can_spare(const std::set<std::string>& hosts) const {
  // A rank that has finished training may save its model, and no other rank saves it.
  if (core_.stage == JobStage::kFinishing || core_.training_end.has_come()) return false;
  const bool needs_state = core_.table.current && !core_.restarts_program();
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

void Generations::host_leaves(int host, const std::string& why, double seconds, Time now) {
  const bool is_ending = core_.is_over() || core_.stage == JobStage::kFinishing;
  if (is_ending || core_.table.hosts.at(host).use == HostUse::kGone) return;
  changes_.host_leaves(host, why, seconds, policy(), now);
  consider(now);
}

void Generations::consider(Time now) {
  while (decide(now)) {
    core_.end_left_hosts();
    changes_.let_hosts_go(policy(), now);
  }
}

// Whether a generation has begun.
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
    // The sentence of the failure alone promises a restart.
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

// Ranks that do not ask for the next generation while others wait for it.
void Generations::give_up_silent(Time now) {
  const auto found = core_.deadlines.silent(now);
  for (const auto& [process, sentence] : found.late) {
    if (core_.is_over()) return;
    if (!core_.table.is_live(process)) continue;
    policy().failed({.process = process, .exit_code = kExitLauncher, .sentence = sentence}, now);
    core_.end_alone(process);
  }
  core_.report_all(found.reminders);
  core_.wake_at(found.next);
}

// Whether there is a rank, or a process that may be one of the first.
bool Generations::has_live_rank() const {
  const ProcessTable& table = core_.table;
  if (table.current && table.live_members() == 0) return false;
  return table.live_processes() > 0 || table.processes.empty();
}

// A rank has ended its work: hosts without ranks end.
void Generations::finish(Time now) {
  check_unfinished(now);
  ProcessTable& table = core_.table;
  for (auto& [number, host] : table.hosts) {
    const bool works = std::ranges::any_of(host.run.ranks(), [&table](const RankRun* rank) {
      const JobProcess& process = table.processes.at(rank->number());
      return process.phase == ProcessPhase::kMember || (!table.current && process.is_coming());
    });
    if (table.has_live_process(host) && !works) core_.drop_host(host);
  }
  if (table.live_members() > 0)
    remind_of_end(now);
  else
    fails_after_training();
}

void Generations::remind_of_end(Time now) {
  if (const auto sentence = core_.training_end.reminder(now)) core_.actions.report(*sentence);
  core_.wake_at(core_.training_end.next());
}

// Once all ranks have ended.
bool Generations::fails_after_training() {
  const TrainingEnd& end = core_.training_end;
  if (!end.failure().is_noted()) return false;
  core_.over(end.failure().exit_code(), end.sentence(), end.failure().process());
  return true;
}

// No generation begins for a rank that asks for one when others have ended their work.
void Generations::check_unfinished(Time now) {
  const ProcessTable& table = core_.table;
  std::vector<std::string> left;
  std::vector<int> asking;
  for (const int process : table.members()) {
    if (!table.is_live(process) || !table.processes.at(process).is_in_run) continue;
    left.push_back(table.whose(process));
    if (table.processes.at(process).phase == ProcessPhase::kAsking) asking.push_back(process);
  }
  if (asking.empty()) return;
  const std::string because = fmt::format(
      "{} exited with code 0, but {} {} not finished training; the remaining ranks ask for another "
      "generation, which "
      "cannot begin after a rank has finished",
      core_.training_end.finished(), join(left, ", "), left.size() == 1 ? "has" : "have");
  // Without a failure, the ranks have left hvd.elastic.run at different steps.
  if (!core_.failure.is_noted()) core_.training_end.failed(kExitLauncher, because, -1, now);
  for (const int process : asking) core_.end_process(process);
}

}  // namespace hvd::launcher
