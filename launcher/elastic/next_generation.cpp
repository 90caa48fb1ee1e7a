#include "launcher/elastic/next_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/plan/exit_codes.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

bool NextGeneration::form(Time now) {
  if (!is_asked() || !all_have_asked(core_.hosts)) return false;
  if (has_ending_member(core_.hosts)) return false;
  if (const auto verdict = core_.repetition.verdict()) {
    core_.over(verdict->exit_code, verdict->sentence, verdict->process);
    return false;
  }
  MembershipPlan plan = plan_in_place();
  if (const auto* few = std::get_if<TooFew>(&plan)) {
    pause(few->slots, now);
    return false;
  }
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr) {
    core_.over(kExitLauncher, kNoState);
    return false;
  }
  if (core_.current && !core_.may_reset(now)) {
    core_.end_by_reset_limit();
    return false;
  }
  for (const Member& member : generation->removed) {
    RankRun& process = core_.hosts.rank(member.incarnation);
    core_.actions.answer(process, {.is_removed = true});
    core_.end_process(process);
  }
  // Wait for the end of leaving ranks: they may save a checkpoint, and rank 0 of the next generation may write to the
  // same file.
  if (has_ending_member(core_.hosts)) return false;
  begin(std::move(*generation), now);
  return true;
}

// Returns whether a process that the next generation waits for has requested its place.
bool NextGeneration::is_asked() const {
  return std::ranges::any_of(core_.hosts.ranks(), [this](const RankRun& one) {
    return one.place_state() == PlaceState::kAsking && (!core_.current || one.is_member());
  });
}

GenerationRules NextGeneration::rules() const {
  return {.least = core_.limits.least,
          .most = core_.limits.most,
          .number = core_.hosts.generation() + 1};
}

// Plans a generation that begins now: the prepared plan, or a new one with the processes that have requested places.
MembershipPlan NextGeneration::plan() const {
  const bool has_state = has_survivor(core_.hosts);
  if (has_state && core_.joining.is_prepared()) {
    Generation generation = *core_.joining.generation();
    generation.number = core_.hosts.generation() + 1;
    return generation;
  }
  return plan_generation(
      core_.hosts, core_.current, core_.pool, rules(), [has_state](const RankRun& process) {
        return process.place_state() == PlaceState::kAsking && (process.is_member() || !has_state);
      });
}

// Ends the processes whose places have changed, and plans again, until no place changes. Places change after a void
// first generation, for example.
MembershipPlan NextGeneration::plan_in_place() {
  MembershipPlan found = plan();
  while (const auto* const generation = std::get_if<Generation>(&found)) {
    std::set<int> processes;
    for (const Member& one : generation->members) processes.insert(one.incarnation);
    if (!start_misplaced_again(processes, *generation)) break;
    found = plan();
  }
  return found;
}

MembershipPlan NextGeneration::plan_joining(const std::set<int>& newcomers) const {
  return plan_generation(
      core_.hosts, core_.current, core_.pool, rules(), [&newcomers](const RankRun& process) {
        return process.is_member() ? !process.is_gone() : newcomers.contains(process.number());
      });
}

bool NextGeneration::start_misplaced_again(const std::set<int>& processes,
                                           const Generation& generation) {
  const std::vector<RankRun*> found = misplaced(core_.hosts, processes, generation);
  for (RankRun* process : found) {
    const std::string& host = process->host().name();
    const std::string after =
        core_.limits.hosts_join()
            ? fmt::format("host {} is used again when an agent joins there", host)
            : "another process starts";
    core_.actions.report(
        fmt::format("{} is ended, because the place that hvd.init gave it has changed; {}",
                    process->describe(), after));
    core_.end_process(*process);
  }
  return !found.empty();
}

// Pauses the job. `found`: the slots of the processes that have requested places; new processes may add slots.
void NextGeneration::pause(int found, Time now) {
  std::set<int> newcomers;
  for (const RankRun& process : core_.hosts.ranks()) {
    if (!process.is_member() && process.place_state() == PlaceState::kAsking)
      newcomers.insert(process.number());
  }
  const MembershipPlan with_new = plan_joining(newcomers);
  if (const auto* const few = std::get_if<TooFew>(&with_new)) found = few->slots;
  const FirstFailure& failure = core_.failure;
  const std::string least = count_of_ranks(core_.limits.least);
  if (!core_.may_grow()) {
    return core_.over(failure.exit_code(),
                      failure.before(fmt::format("the job needs at least {} (--min-np), and has {}",
                                                 least, found)));
  }
  paused_since_ = paused_since_.value_or(now);
  const Time limit = *paused_since_ + duration_of(core_.limits.pause_seconds);
  if (now >= limit) {
    return core_.over(
        kExitLauncher,
        fmt::format("the job has {} of at least {}, and no others came within {:g} s "
                    "(--elastic-timeout){}",
                    found, least, core_.limits.pause_seconds,
                    failure.is_noted() ? fmt::format("; {}", failure.sentence()) : ""));
  }
  pause_.start(now);
  if (pause_.is_due(now)) {
    core_.actions.report(
        fmt::format("the job pauses: it has {} of at least {}{}; it waits for {}", found, least,
                    failure.is_noted() ? fmt::format(", since {}", failure.sentence()) : "",
                    core_.capacity.awaited_hosts(now)));
  }
  core_.wake_at(std::min(limit, pause_.next()));
}

void NextGeneration::begin(Generation generation, Time now) {
  if (core_.current) core_.count_reset(why_it_resets(), now);
  core_.deadlines.generation_began(now);
  paused_since_.reset();
  pause_.stop();
  core_.ready_since.reset();
  core_.notice.clear();
  core_.failure.clear();
  core_.training_end.clear();
  if (core_.current) {
    core_.actions.report(fmt::format("generation {}: {}{}", generation.number,
                                     count_of_ranks(std::ssize(generation.members)),
                                     core_.history.resets.left(core_.limits.resets)));
  }
  const rendezvous::Generation record = record_of(generation);
  core_.actions.begin_generation(record);
  if (has_survivor(core_.hosts) && core_.joining.is_prepared()) core_.joining.drop();
  core_.set_current(std::move(generation));
  const std::vector<rendezvous::PlaceAnswer> answers = answers_of(record);
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    RankRun& process = *core_.hosts.members()[rank];
    core_.actions.answer(process, answers[rank]);
    process.to(PlaceState::kMember);
    process.place().generation = record.number;
  }
}

// Returns why the next generation begins, for the sentence of --reset-limit.
std::string NextGeneration::why_it_resets() const {
  return core_.failure.is_noted() ? core_.failure.sentence() : core_.notice.cause();
}

}  // namespace hvd::launcher
