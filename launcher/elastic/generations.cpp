#include "launcher/elastic/generations.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <set>

#include "base/text.h"
#include "base/words.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

constexpr int kRestarts = 3;  // of a program after failures, unless the user says otherwise
// Hosts that become ready within this time cost one change of generation.
constexpr seconds kGathering{1};
// How long a rank may stay silent after the others asked, before it is named.
constexpr seconds kUntilNamed{5};
constexpr seconds kPauseTold{60};
constexpr int kExitFailed = 1;
constexpr size_t kResetsTold = 5;  // of a history

// Whether a rank may have ended so because another rank did: its libraries raise an error, or abort.
bool may_follow_another(int exit_code) {
  return exit_code < kExitSignal || exit_code == kExitSignal + SIGABRT ||
         exit_code == kExitSignal + SIGPIPE;
}

std::string about_changes_left(int64_t count) {
  return cat("; ", count, count == 1 ? " change is left" : " changes are left");
}

Clock::duration duration_of(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

rendezvous::Generation record_of(const Generation& generation) {
  rendezvous::Generation record;
  record.number = static_cast<int32_t>(generation.number);
  for (const Member& member : generation.members) {
    record.members.push_back(
        {static_cast<int32_t>(member.incarnation), member.is_new, member.host});
  }
  return record;
}

std::map<int, rendezvous::PlaceAnswer> answers_by_process(const Generation& generation) {
  std::map<int, rendezvous::PlaceAnswer> answers;
  int rank = 0;
  for (const rendezvous::PlaceAnswer& answer : answers_of(record_of(generation))) {
    answers.emplace(static_cast<int>(generation.members[rank++].incarnation), answer);
  }
  return answers;
}

}  // namespace

Generations::Generations(const GenerationLimits& limits, GenerationActions& actions,
                         JobHistory& history)
    : limits_(limits), actions_(actions), history_(history), pool_(history.pool) {
  if (history_.most) limits_.most = history_.most;
}

int Generations::rank_of(int process) const {
  if (!current_) return -1;
  for (size_t rank = 0; rank < current_->members.size(); ++rank) {
    if (current_->members[rank].incarnation == process) return static_cast<int>(rank);
  }
  return -1;
}

std::vector<int> Generations::members() const {
  std::vector<int> processes;
  if (!current_) return processes;
  for (const Member& member : current_->members) {
    processes.push_back(static_cast<int>(member.incarnation));
  }
  return processes;
}

bool Generations::is_member(int process) const { return rank_of(process) >= 0; }

bool Generations::is_live(int process) const {
  const auto found = processes_.find(process);
  return found != processes_.end() && found->second.phase != Phase::kGone;
}

int Generations::live_processes() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(), [](const auto& one) {
    return one.second.phase != Phase::kGone;
  }));
}

int Generations::staying_processes() const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [this](const auto& one) {
        return one.second.phase != Phase::kGone && !hosts_.at(one.second.host).is_leaving;
      }));
}

int Generations::live_processes(const std::string& host) const {
  int count = 0;
  for (const auto& [number, process] : processes_) {
    if (process.is_removed) continue;
    if (process.phase != Phase::kGone && hosts_.at(process.host).name == host) ++count;
  }
  return count;
}

void Generations::discovered(std::vector<Host> hosts, Time now) {
  pool_.discovered(std::move(hosts));
  if (!std::exchange(has_begun_, true)) {
    begun_ = now;
    if (limits_.restarts_programs || limits_.may_be_originals) assume_ranks();
  }
  consider(now);
}

int Generations::free_slot(const std::string& host) const {
  std::set<int> used;
  for (const auto& [number, process] : processes_) {
    if (process.phase != Phase::kGone && hosts_.at(process.host).name == host) {
      used.insert(process.slot);
    }
  }
  int slot = 0;
  while (used.contains(slot)) ++slot;
  return slot;
}

void Generations::add(int host, const std::string& name, int first, int count) {
  HostState& state = hosts_[host];
  state.name = name;
  for (int number = first; number < first + count; ++number) {
    const int slot = free_slot(name);
    state.processes.push_back(number);
    processes_[number] = {
        .host = host, .slot = slot, .phase = is_assumed_ ? Phase::kHeld : Phase::kStarting};
  }
}

void Generations::prepared(int host, Time now) {
  HostState& state = hosts_.at(host);
  if (state.is_gone) return;
  state.is_prepared = true;
  note_start(host, now);
  if (!is_assumed_) actions_.start_processes(host);
  consider(now);
}

// The processes of a host that has come later start now.
void Generations::note_start(int host, Time now) {
  for (const int process : hosts_.at(host).processes) processes_.at(process).since = now;
}

void Generations::takes_part(Time now) {
  if (!std::exchange(takes_part_, true) && current_) first_work_ = now - first_began_;
  consider(now);
}

// Until a process asks for a place, and for ever if the program does not use Horovod, the ranks are those
// with which the launch began.
void Generations::assume_ranks() {
  Generation generation;
  generation.number = history_.generation;
  for (auto& [number, process] : processes_) {
    generation.members.push_back({.host = hosts_.at(process.host).name,
                                  .slot = process.slot,
                                  .incarnation = number,
                                  .is_new = true});
    process.phase = Phase::kMember;
    process.generation = history_.generation;
  }
  current_ = std::move(generation);
  is_assumed_ = true;
}

void Generations::drop_assumption(Time now) {
  if (!std::exchange(is_assumed_, false)) return;
  current_.reset();
  for (auto& [number, process] : processes_) {
    if (process.phase != Phase::kMember && process.phase != Phase::kHeld) continue;
    process.phase = Phase::kStarting;
    process.generation = -1;
  }
  for (const auto& [number, host] : hosts_) {
    if (!host.is_prepared || host.is_gone) continue;
    note_start(number, now);
    actions_.start_processes(number);
  }
}

void Generations::start_failed(int host, const std::string& sentence, Time now) {
  HostState& state = hosts_.at(host);
  if (state.is_gone) return;
  drop_host(state);
  const auto wait = pool_.retry_later(state.name, seconds(5), seconds(300), now);
  actions_.say(cat(sentence, "; the job goes on without it, and ",
                   limits_.hosts_join ? "uses it again when an agent joins there, not before "
                                      : "tries it again in ",
                   wait.count(), " s"));
  consider(now);
}

void Generations::requested(int process, const rendezvous::PlaceRequest& request, Time now) {
  if (!is_live(process)) return;
  Process& one = processes_.at(process);
  if (request.number <= one.request) return;
  limits_.may_be_originals = false;
  drop_assumption(now);
  one.phase = Phase::kAsking;
  one.request = request.number;
  one.generation = request.generation;
  one.takes_any_place = request.from == rendezvous::PlaceRequestFrom::kElasticRun;
  if (request.from == rendezvous::PlaceRequestFrom::kInit || request.generation >= 0) {
    one.provisional.reset();
  }
  if (request.has_committed) note_commit(request.generation);
  if ((!current_ || is_member(process)) && !asking_since_) asking_since_ = now;
  consider(now);
}

void Generations::original_requested(int process, int64_t request, Time now) {
  if (!is_live(process) || !is_assumed_) return;
  Process& one = processes_.at(process);
  if (one.phase != Phase::kMember) return;
  one.phase = Phase::kAsking;
  one.request = request;
  note_commit(generation());  // it may have
  if (!asking_since_) asking_since_ = now;
  consider(now);
}

bool Generations::is_asking(int process) const {
  const auto found = processes_.find(process);
  return found != processes_.end() && found->second.phase == Phase::kAsking;
}

// Whether the next generation may have this process, which then starts.
bool Generations::is_held(const Process& process) const {
  const HostState& host = hosts_.at(process.host);
  return process.phase == Phase::kHeld && limits_.may_be_originals && host.is_prepared &&
         !host.is_gone;
}

// The same exception of a second rank, with no commit between, follows the program or its data, not a host.
void Generations::note_exception(int process, int exit_code, const std::string& sentence,
                                 const std::string& exception) {
  if (exception.empty() || !is_member(process) || finishing_ || restarts_program()) return;
  // Horovod raises this one on ranks that another rank's failure has reached.
  if (exception.find("HorovodInternalError") != std::string::npos) return;
  const Process& one = processes_.at(process);
  const Repetition::Failure failure{.process = process,
                                    .slot = one.slot,
                                    .generation = generation(),
                                    .host = hosts_.at(one.host).name,
                                    .whose = whose(process),
                                    .sentence = sentence};
  if (!repetition_ || repetition_->exception != exception || repetition_->exit_code != exit_code) {
    repetition_ = Repetition{exception, exit_code, failure, {}};
    return;
  }
  const Repetition::Failure& first = repetition_->first;
  const bool is_elsewhere = first.host != failure.host || first.slot == failure.slot;
  if (failure.generation > first.generation && is_elsewhere) repetition_->again = failure;
}

// A rank has committed in this generation: the failures before it do not count.
void Generations::note_commit(int32_t generation) {
  if (!repetition_ || generation <= repetition_->first.generation) return;
  if (!repetition_->again) return repetition_.reset();
  repetition_->first = *std::exchange(repetition_->again, {});
}

// Whether an exception has come again, and no rank that has asked knows of a commit between.
bool Generations::ends_by_repetition() {
  if (!repetition_ || !repetition_->again) return false;
  over(repetition_->exit_code,
       cat(repetition_->again->sentence, "; ", repetition_->first.whose,
           " had failed with the same exception (", repetition_->exception, ") in generation ",
           repetition_->first.generation,
           ", and no rank has committed since: the program or its data is the cause, not a host"),
       repetition_->again->process);
  return true;
}

bool Generations::ended(int process, int exit_code, const std::string& sentence, Time now,
                        const std::string& exception) {
  if (is_over_ || !is_live(process)) return true;
  if (exit_code != 0) note_exception(process, exit_code, sentence, exception);
  const bool is_failure_of_job = exit_code != 0 && finishing_ && is_member(process);
  if (exit_code != 0) {
    fail(process, exit_code, sentence, now);
  } else {
    processes_.at(process).phase = Phase::kGone;
    // A process that was no rank yet has done no work.
    if (!current_ || is_member(process)) {
      if (!suspect_) finishing_ = finishing_.value_or(now);
    } else if (!finishing_) {
      actions_.say(cat(whose(process), " exited with code 0 before it was a rank; ",
                       start_another_later(hosts_.at(processes_.at(process).host).name, now)));
    }
  }
  consider(now);
  return !is_failure_of_job;
}

bool Generations::host_lost(int host, const std::string& sentence, Time now) {
  HostState& state = hosts_.at(host);
  if (is_over_ || state.is_gone) return true;
  const auto found = std::find_if(state.processes.begin(), state.processes.end(),
                                  [this](int process) { return is_live(process); });
  if (found == state.processes.end()) {
    state.is_gone = true;
    return true;
  }
  const bool was_member =
      std::any_of(state.processes.begin(), state.processes.end(),
                  [this](int process) { return is_live(process) && is_member(process); });
  if (failure_.empty() && (was_member || !current_)) {
    failure_code_ = kExitFailed;
    failure_ = sentence;
    failed_process_ = -1;
  }
  drop_host(state);
  const std::string after = exclude(state.name, now);
  const std::string words = after.empty() ? sentence : cat(sentence, "; ", after);
  if (was_member && restarts_program()) {
    suspect_.reset();
    restart(cat(words, "; no rank has entered hvd.elastic.run, so all of them start again"), now);
    return true;
  }
  const bool is_failure_of_job = was_member && finishing_;
  actions_.say(words);
  if (was_member) tell_loss(sentence, now);
  consider(now);
  return !is_failure_of_job;
}

// After a failure on a host. Returns what the user should know of it, or nothing.
std::string Generations::exclude(const std::string& name, Time now) {
  const auto exclusion = pool_.exclude(name, now);
  if (limits_.hosts_join) return cat("host ", name, " is used again when an agent joins there");
  return exclusion ? about_exclusion(name, *exclusion) : "";
}

// Whether ranks of the host work: it is sound.
bool Generations::has_worked(const std::string& host) const { return members_of(host) > 0; }

// After the end of a process that has done no work yet, beside ranks that work.
std::string Generations::start_another_later(const std::string& name, Time now) {
  const auto wait = pool_.retry_later(name, seconds(5), seconds(300), now);
  return cat(
      "the job goes on without it",
      limits_.hosts_join ? "" : cat(", and starts another one there in ", wait.count(), " s"));
}

// Ends what still runs there.
void Generations::drop_host(HostState& host) {
  if (std::exchange(host.is_gone, true)) return;
  for (const int process : host.processes) processes_.at(process).phase = Phase::kGone;
  for (const auto& [number, state] : hosts_) {
    if (&state == &host) actions_.end_host(number);
  }
}

// Ends a process that has lost its place.
void Generations::dismiss(int process) {
  if (std::exchange(processes_.at(process).phase, Phase::kGone) == Phase::kGone) return;
  end_alone(process);
}

// Ends a process that no longer counts, and its host if no other process runs there.
void Generations::end_alone(int process) {
  HostState& host = hosts_.at(processes_.at(process).host);
  if (host.is_gone) return;
  const bool is_last = std::none_of(host.processes.begin(), host.processes.end(),
                                    [this](int other) { return is_live(other); });
  if (is_last)
    drop_host(host);
  else
    actions_.end_process(process);
}

// Ends processes that are no ranks and can become none: the last started ones.
void Generations::drop_surplus() {
  if (!current_) return;
  for (auto last = processes_.rbegin(); last != processes_.rend(); ++last) {
    const auto& [number, process] = *last;
    if (process.phase == Phase::kGone || is_member(number)) continue;
    const std::string& name = hosts_.at(process.host).name;
    const bool is_above_slots = std::any_of(
        pool_.offered().begin(), pool_.offered().end(),
        [&](const Host& host) { return host.name == name && live_processes(name) > host.slots; });
    if (is_above_slots || (limits_.most && staying_processes() > *limits_.most)) dismiss(number);
  }
}

bool Generations::has_live_member_beside(int host) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) {
    return one.second.host != host && is_live(one.first) && is_member(one.first);
  });
}

// The rank that failed first is the cause, since no other one was found.
void Generations::decide_suspect(Time now) {
  const Suspect suspect = *std::exchange(suspect_, {});
  fail(suspect.process, suspect.exit_code, suspect.sentence, now, suspect.since);
}

void Generations::fail(int process, int exit_code, const std::string& sentence, Time now) {
  Process& one = processes_.at(process);
  one.phase = Phase::kGone;
  if (is_member(process) && restarts_program() && may_follow_another(exit_code)) {
    // Another host may be lost, which is known later, or its kernel may have killed a rank.
    if (!suspect_) suspect_ = {process, exit_code, sentence, now};
    if (!has_live_member_beside(processes_.at(suspect_->process).host)) decide_suspect(now);
    return;
  }
  suspect_.reset();
  fail(process, exit_code, sentence, now, now);
}

void Generations::fail(int process, int exit_code, const std::string& sentence, Time now,
                       Time since) {
  const Process& one = processes_.at(process);
  const bool was_member = is_member(process);
  // A process that was no rank yet takes nothing from the others.
  if (failure_.empty() && (was_member || !current_)) {
    failure_code_ = exit_code;
    failure_ = sentence;
    failed_process_ = process;
  }
  HostState& host = hosts_.at(one.host);
  const std::string name = host.name;
  const bool is_alone = std::all_of(pool_.offered().begin(), pool_.offered().end(),
                                    [&](const Host& other) { return other.name == name; });
  std::string after;
  // A rank of a program that cannot live through a change may have failed for another host's failure.
  const bool may_be_sound = was_member && restarts_program() && may_follow_another(exit_code);
  if (limits_.restarts_ranks || may_be_sound || (is_alone && !limits_.hosts_join)) {
    const auto wait = pool_.retry_later(name, seconds(1), seconds(60), now);
    after = cat("it is started again in ", wait.count(), " s");
  } else if (!was_member && has_worked(name)) {
    after = start_another_later(name, now);
  } else {
    after = exclude(name, now);
    for (auto& [number, state] : hosts_) {
      if (state.name == name) drop_host(state);
    }
  }
  const std::string words = after.empty() ? sentence : cat(sentence, "; ", after);
  if (was_member && restarts_program()) return restart_after_failure(words, exit_code, since, now);
  if (live_processes() > 0 && !finishing_) actions_.say(words);
  if (was_member) tell_loss(sentence, now);
}

// Whether the present ranks cannot live through a change, as far as the launcher knows.
bool Generations::restarts_program() const {
  return limits_.restarts_programs && !takes_part_ && !finishing_ && !is_over_ && current_;
}

// When ranks that are to leave do so.
std::string Generations::when_they_leave(const std::string& whose, Time now) const {
  const Time last = begun_ + duration_of(limits_.return_seconds);
  if (!restarts_program()) return cat("when ", whose, " next commit");
  if (now >= last) {
    return "at once, and all ranks start again, since none has entered hvd.elastic.run";
  }
  const auto left = std::chrono::ceil<seconds>(last - now);
  return cat("when ", whose, " next commit; if no rank enters hvd.elastic.run within ",
             left.count(), " s, all of them start again then");
}

void Generations::restart_after_failure(const std::string& sentence, int exit_code, Time since,
                                        Time now) {
  // A rank that fails so soon would most likely fail again: an import, a path, a setting.
  if (!limits_.most_restarts && exit_code < kExitSignal &&
      since < begun_ + duration_of(limits_.return_seconds)) {
    return over(failure_code_,
                cat(failure_, "; the ranks are not started again after a failure within ",
                    limits_.return_seconds,
                    " s of their start (--start-timeout) unless --max-restarts is given"),
                failed_process_);
  }
  const int most = limits_.most_restarts.value_or(kRestarts);
  if (history_.restarts >= most) {
    return over(
        failure_code_,
        cat(failure_, most == 0 ? ""
                                : cat("; the job has been started again ", history_.restarts,
                                      history_.restarts == 1 ? " time" : " times",
                                      ", and may not be again (--max-restarts)")),
        failed_process_);
  }
  ++history_.restarts;
  restart(
      cat(sentence, "; no rank has entered hvd.elastic.run, so all of them start again (restart ",
          history_.restarts, " of ", most, ")"),
      now);
}

// Ends the launch. The next one has the hosts that there are then.
void Generations::restart(const std::string& why, Time now) {
  if (offered_slots() < limits_.least && !may_grow()) {
    return over(failure_code_ != 0 ? failure_code_ : kExitFailed,
                cat(failure_.empty() ? "" : cat(failure_, "; "), "the job needs at least ",
                    count_of_ranks(limits_.least), " (--min-np), and its hosts have slots for ",
                    offered_slots()),
                failed_process_);
  }
  if (!may_reset(now)) return end_by_reset_limit();
  count_reset(failure_.empty() ? "the program started again with other ranks" : failure_, now);
  history_.generation = generation() + 1;
  history_.failure = failure_;
  history_.failure_code = failure_code_;
  history_.hosts.clear();
  for (const Member& member : current_->members) history_.hosts.push_back(member.host);
  actions_.say(why);
  is_over_ = true;
  actions_.restart();
}

void Generations::end_by_reset_limit() {
  const auto& resets = history_.resets;
  const size_t left_out = resets.size() - std::min(resets.size(), kResetsTold);
  std::string causes = left_out > 0 ? "; the last ones" : "";
  for (size_t reset = left_out; reset < resets.size(); ++reset) {
    causes += cat(reset == left_out && left_out > 0 ? ": " : "; ", "generation ",
                  resets[reset].generation, ": ", resets[reset].why);
  }
  over(kExitFailed,
       cat("the ranks of the job have changed ", resets.size(),
           resets.size() == 1 ? " time" : " times", ", and may not do so again (--reset-limit)",
           causes, failure_.empty() ? "" : cat("; now ", failure_)),
       failed_process_);
}

void Generations::tell_loss(const std::string& sentence, Time now) {
  if (!lost_since_) lost_since_ = told_loss_ = now;
  actions_.tell_loss(generation(), sentence);
}

// Says which ranks have not asked for their next place since a loss: they do so at their next operation, which
// may be late. Horovod's own workers get no word of it, and never leave an init that cannot succeed.
void Generations::name_unaware(Time now) {
  if (!lost_since_ || asking_since_ || finishing_ || !current_) return;
  std::optional<Time> limit;
  if (limits_.may_be_originals && !takes_part_) {
    limit = *lost_since_ + duration_of(limits_.return_seconds);
    if (now >= *limit) {
      return over(failure_code_,
                  cat(failure_, "; no other rank has entered hvd.elastic.run within ",
                      limits_.return_seconds, " s of that (--start-timeout)"),
                  failed_process_);
    }
  }
  std::vector<std::string> names;
  for (const int process : members()) {
    if (is_live(process)) names.push_back(whose(process));
  }
  // All of them may work for long without Horovod, or may be stopped.
  const Time end = *lost_since_ + duration_of(limits_.pause_seconds);
  if (now >= end) {
    return over(failure_code_ != 0 ? failure_code_ : kExitFailed,
                cat(failure_, "; ", join(names, ", "), names.size() == 1 ? " has" : " have",
                    " called nothing of Horovod within ", limits_.pause_seconds,
                    " s of that (--elastic-timeout); horovodrun stack shows where such ranks are"),
                failed_process_);
  }
  if (now >= told_loss_ + kPauseTold) {
    told_loss_ = now;
    actions_.say(cat("the next generation waits until ", join(names, ", "),
                     names.size() == 1 ? " notices" : " notice",
                     " at an operation of Horovod that ", failure_));
  }
  next_ =
      std::min({next_.value_or(Time::max()), limit.value_or(end), end, told_loss_ + kPauseTold});
}

// Gives up processes that have a provisional place and do not ask for the final one. The ranks train meanwhile.
void Generations::give_up_unprepared(Time now) {
  if (!takes_part_) return;
  // The first ranks have shown how long the program needs between hvd.init and hvd.elastic.run.
  const Clock::duration limit = first_work_ + duration_of(limits_.return_seconds);
  const auto in_words = cat(std::chrono::ceil<seconds>(limit).count(), " s");
  std::vector<std::string> names;
  Time first = Time::max();  // since when
  for (auto& [number, process] : processes_) {
    if (process.phase != Phase::kPreparing) continue;
    if (now >= process.since + limit) {
      const std::string name = whose(number);
      dismiss(number);
      fail(number, kExitFailed,
           cat(name, " has not entered hvd.elastic.run, nor called a collective, within ", in_words,
               " of its hvd.init (--start-timeout)"),
           now);
      continue;
    }
    first = std::min(first, process.since);
    names.push_back(whose(number));
  }
  if (names.empty()) {
    told_unprepared_.reset();
    return;
  }
  Time tell = told_unprepared_ ? *told_unprepared_ + kPauseTold : first + kUntilNamed;
  if (now >= tell) {
    told_unprepared_ = now;
    tell = now + kPauseTold;
    actions_.say(cat("the next generation waits for ", join(names, ", "),
                     names.size() == 1 ? ", which is new," : ", which are new,",
                     " to enter hvd.elastic.run, up to ", in_words, " after ",
                     names.size() == 1 ? "its" : "their", " hvd.init (--start-timeout)"));
  }
  next_ = std::min({next_.value_or(Time::max()), tell, first + limit});
}

// Whether a rank that has the state goes on.
bool Generations::has_survivor() const {
  const std::vector<int> ranks = members();
  return std::any_of(ranks.begin(), ranks.end(),
                     [this](int process) { return is_live(process) && has_met(process); });
}

// While ranks train, gathers the processes that ask to join them, and tells these the places that they will have.
// The ranks are interrupted when all of these processes have asked again.
void Generations::plan_newcomers(Time now) {
  if (finishing_ || is_over_ || is_assumed_ || restarts_program() || !has_survivor()) return;
  if (joining_) check_joining();
  if (!joining_) {
    std::set<int> ready;
    for (const auto& [number, process] : processes_) {
      if (!is_member(number) && has_spare_place(process)) ready.insert(number);
    }
    if (ready.empty()) return ready_since_.reset();
    ready_since_ = ready_since_.value_or(now);
    const bool may_come = std::any_of(processes_.begin(), processes_.end(), [](const auto& one) {
      return one.second.phase == Phase::kStarting;
    });
    const Time when = may_come ? *ready_since_ + kGathering : *ready_since_;
    if (now < when) {
      next_ = std::min(next_.value_or(Time::max()), when);
      return;
    }
    ready_since_.reset();
    MembershipPlan plan = plan_joining(ready);
    auto* const generation = std::get_if<Generation>(&plan);
    if (generation == nullptr || !generation->has_new()) return;
    told_unprepared_.reset();
    joining_ = std::move(*generation);
  }
  tell_provisional_places(now);
}

// The next generation if these processes join all ranks that do not leave.
MembershipPlan Generations::plan_joining(const std::set<int>& newcomers) const {
  return plan_with([&](int process) {
    return is_member(process) ? is_live(process) : newcomers.contains(process);
  });
}

// The plan is void when ranks or newcomers end or are to leave. A process that has a place in its hands, and would
// have another one, starts again: a program sees its place change within hvd.elastic.run only.
void Generations::check_joining() {
  for (;;) {
    std::set<int> newcomers;
    for (const Member& member : joining_->members) {
      const auto process = static_cast<int>(member.incarnation);
      if (is_live(process) && !is_member(process)) newcomers.insert(process);
    }
    MembershipPlan plan = plan_joining(newcomers);
    auto* const generation = std::get_if<Generation>(&plan);
    const bool has_new = generation != nullptr && generation->has_new();
    const Generation nobody;
    if (start_misplaced_again(newcomers, has_new ? *generation : nobody)) continue;
    if (has_new)
      joining_ = std::move(*generation);
    else
      joining_.reset();
    return;
  }
}

// Ends those of the processes that cannot take their places of this generation. Whether there were any.
bool Generations::start_misplaced_again(const std::set<int>& processes,
                                        const Generation& generation) {
  const std::map<int, rendezvous::PlaceAnswer> answers = answers_by_process(generation);
  bool any = false;
  for (const int number : processes) {
    const Process& process = processes_.at(number);
    if (!process.provisional || process.takes_any_place) continue;
    if (const auto found = answers.find(number); found != answers.end()) {
      rendezvous::Place place = found->second.place;
      place.generation = process.provisional->generation;
      if (place == *process.provisional) continue;
    }
    any = true;
    actions_.say(cat(
        whose(number), " ends, since the place that it was given in hvd.init has changed; ",
        limits_.hosts_join
            ? cat("host ", hosts_.at(process.host).name, " is used again when an agent joins there")
            : "another one starts"));
    dismiss(number);
  }
  return any;
}

void Generations::tell_provisional_places(Time now) {
  for (auto& [number, answer] : answers_by_process(*joining_)) {
    Process& process = processes_.at(number);
    if (is_member(number) || process.phase != Phase::kAsking) continue;
    if (process.provisional || process.takes_any_place) continue;
    process.phase = Phase::kPreparing;
    process.provisional = answer.place;
    process.since = now;
    actions_.answer(number, process.request,
                    {.place = answer.place, .has_new_members = true, .is_provisional = true});
    next_ = std::min(next_.value_or(Time::max()), now + kUntilNamed);
  }
}

bool Generations::has_joining(int process) const {
  return joining_ && std::any_of(joining_->members.begin(), joining_->members.end(),
                                 [&](const Member& one) { return one.incarnation == process; });
}

bool Generations::all_joining_are_prepared() const {
  return joining_ &&
         std::all_of(joining_->members.begin(), joining_->members.end(), [this](const Member& one) {
           const auto process = static_cast<int>(one.incarnation);
           return is_member(process) || processes_.at(process).phase == Phase::kAsking;
         });
}

void Generations::start_hosts(Time now) {
  if (finishing_ || is_over_) return;
  for (const Host& host : pool_.offered()) {
    if (!pool_.may_start(host.name, now)) continue;
    if (limits_.hosts_join && live_processes(host.name) > 0) continue;
    int wanted = host.slots - live_processes(host.name);
    if (limits_.most) wanted = std::min(wanted, *limits_.most - staying_processes());
    if (wanted <= 0) continue;
    note_start(actions_.start_host(host, wanted), now);
  }
  if (const auto time = pool_.next_start(now)) {
    next_ = std::min(next_.value_or(Time::max()), *time);
  }
}

void Generations::mark_leaving() {
  for (auto& [number, host] : hosts_) {
    const auto is_it = [&name = host.name](const Host& one) { return one.name == name; };
    host.is_leaving =
        !host.is_gone && std::none_of(pool_.offered().begin(), pool_.offered().end(), is_it);
    if (!host.is_leaving) continue;
    // Nobody needs what has not begun to work.
    const bool has_member =
        std::any_of(host.processes.begin(), host.processes.end(),
                    [this](int process) { return is_live(process) && is_member(process); });
    if (!has_member) drop_host(host);
  }
}

bool Generations::all_have_asked() const {
  for (const auto& [number, process] : processes_) {
    if (process.phase == Phase::kMember) return false;
    if (!current_ && process.phase == Phase::kStarting) return false;
  }
  return true;
}

// The members if the next generation began now: of those who have asked.
MembershipPlan Generations::next() const {
  const bool has_state = has_survivor();
  if (has_state && all_joining_are_prepared()) {
    Generation generation = *joining_;
    generation.number = this->generation() + 1;
    return generation;
  }
  return plan_with([this, has_state](int number) {
    const Process& process = processes_.at(number);
    return is_held(process) ||
           (process.phase == Phase::kAsking && (is_member(number) || !has_state));
  });
}

MembershipPlan Generations::plan_with(const Takes& takes) const {
  MembershipChange change;
  change.min = limits_.least;
  change.max = limits_.most;
  change.number = generation() + 1;
  change.is_needed = true;
  if (current_) change.previous = *current_;
  // A member of a generation whose ranks never met has no state.
  std::erase_if(change.previous.members, [this](const Member& member) {
    const auto process = static_cast<int>(member.incarnation);
    return is_live(process) && !has_met(process);
  });
  for (const Member& member : change.previous.members) {
    const auto process = static_cast<int>(member.incarnation);
    const Process& one = processes_.at(process);
    if (!is_live(process))
      change.ended.insert(process);
    else if (one.is_removed || hosts_.at(one.host).is_leaving)
      change.leaving.insert(process);
  }
  for (const Host& host : pool_.offered()) {
    UsableHost usable{.host = host};
    int count = 0;
    for (const auto& [number, process] : processes_) {
      const HostState& state = hosts_.at(process.host);
      if (state.name != host.name || state.is_leaving) continue;
      if (process.is_removed || !takes(number)) continue;
      ++count;
      if (!is_member(number) || !has_met(number)) {
        usable.started.push_back({process.slot, number});
      }
    }
    usable.host.slots = std::min(host.slots, count);
    if (usable.host.slots > 0) change.usable.push_back(std::move(usable));
  }
  const bool all_leave = !change.leaving.empty() &&
                         std::all_of(change.previous.members.begin(), change.previous.members.end(),
                                     [&](const Member& member) {
                                       return change.ended.contains(member.incarnation) ||
                                              change.leaving.contains(member.incarnation);
                                     });
  return all_leave ? hand_over(std::move(change)) : plan_membership(change);
}

// All ranks with the state are to leave. One of them stays until others have the state, and all wait for
// those.
MembershipPlan Generations::hand_over(MembershipChange change) const {
  int slots = 0;
  for (const UsableHost& host : change.usable) slots += host.host.slots;
  if (slots < change.min || slots == 0) return TooFew{slots, change.min};
  const Member holder = *std::find_if(
      change.previous.members.begin(), change.previous.members.end(),
      [&](const Member& member) { return change.leaving.contains(member.incarnation); });
  change.leaving.erase(holder.incarnation);
  const auto place =
      std::find_if(change.usable.begin(), change.usable.end(),
                   [&](const UsableHost& usable) { return usable.host.name == holder.host; });
  if (place != change.usable.end())
    ++place->host.slots;
  else
    change.usable.push_back({.host = {holder.host, "", 1}});
  if (change.max) change.max = std::max(*change.max, 2);
  return plan_membership(change);
}

void Generations::begin(Generation generation, Time now) {
  if (current_) count_reset(why_it_resets(), now);
  if (!current_) {
    first_start_ = now - begun_;
    first_began_ = now;
  }
  paused_since_.reset();
  asking_since_.reset();
  ready_since_.reset();
  has_named_silent_ = false;
  lost_since_.reset();
  announced_ = rendezvous::kHostsUnchanged;
  failure_.clear();
  failure_code_ = 0;
  failed_process_ = -1;
  if (current_) {
    const std::string left =
        limits_.resets ? about_changes_left(limits_.resets->resets - std::ssize(history_.resets))
                       : "";
    actions_.say(cat("generation ", generation.number, ": ",
                     count_of_ranks(std::ssize(generation.members)), left));
  }
  const rendezvous::Generation record = record_of(generation);
  actions_.begin_generation(record);
  current_ = std::move(generation);
  std::set<int> starting;  // hosts
  const std::vector<rendezvous::PlaceAnswer> answers = answers_of(record);
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    const int number = record.members[rank].process;
    Process& process = processes_.at(number);
    if (process.phase == Phase::kHeld)
      starting.insert(process.host);
    else
      actions_.answer(number, process.request, answers[rank]);
    process.phase = Phase::kMember;
    process.generation = record.number;
    if (has_joining(number) && record.members[rank].is_new) joining_.reset();
  }
  for (const int host : starting) {
    // Its agent starts all of them at once.
    for (const int process : hosts_.at(host).processes) {
      if (processes_.at(process).phase == Phase::kHeld) dismiss(process);
    }
    actions_.start_processes(host);
  }
  for (const Member& member : current_->removed) dismiss(static_cast<int>(member.incarnation));
}

void Generations::over(int exit_code, const std::string& sentence, int process) {
  if (std::exchange(is_over_, true)) return;
  actions_.end_job(exit_code, sentence, process);
}

// A rank has ended its work: no further generation begins, and who asks for one is ended.
void Generations::finish() {
  for (auto& [number, host] : hosts_) {
    const bool works = std::any_of(host.processes.begin(), host.processes.end(), [this](int one) {
      return processes_.at(one).phase == Phase::kMember ||
             (!current_ && processes_.at(one).phase == Phase::kStarting);
    });
    const bool has_live = std::any_of(host.processes.begin(), host.processes.end(),
                                      [this](int one) { return is_live(one); });
    if (has_live && !works) drop_host(host);
  }
}

// Whether other processes than the present ones may come.
bool Generations::may_grow() const {
  if (limits_.finds_hosts) return true;
  const auto is_starting = [](const auto& one) {
    return one.second.phase == Phase::kStarting || one.second.phase == Phase::kHeld;
  };
  if (joining_ || ready_since_) return true;
  if (std::any_of(processes_.begin(), processes_.end(), is_starting)) return true;
  return std::any_of(pool_.offered().begin(), pool_.offered().end(), [this](const Host& host) {
    return !pool_.is_excluded_for_ever(host.name) && live_processes(host.name) < host.slots;
  });
}

// Where the ranks may come from that a paused job lacks.
std::string Generations::awaited_hosts(Time now) const {
  std::vector<std::string> places;
  for (const Host& host : pool_.offered()) {
    if (pool_.is_excluded_for_ever(host.name)) continue;
    const bool is_starting =
        std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) {
          const bool starts = !is_member(one.first) && one.second.phase != Phase::kGone;
          return starts && hosts_.at(one.second.host).name == host.name;
        });
    const Time when = pool_.usable_from(host.name);
    if (is_starting) {
      places.push_back(cat("host ", host.name, " (starting)"));
    } else if (when > now && live_processes(host.name) < host.slots) {
      places.push_back(cat("host ", host.name, " (again in ",
                           std::chrono::ceil<seconds>(when - now).count(), " s)"));
    }
  }
  if (limits_.finds_hosts || places.empty()) {
    places.push_back(limits_.hosts_join    ? "agents that join"
                     : limits_.finds_hosts ? "further hosts of the discovery script"
                                           : "free slots of its hosts");
  }
  return join(places, ", ");
}

void Generations::pause(int found, Time now) {
  if (!may_grow()) {
    over(failure_code_ != 0 ? failure_code_ : kExitFailed,
         cat(failure_.empty() ? "" : cat(failure_, "; "), "the job needs at least ",
             count_of_ranks(limits_.least), " (--min-np), and has ", found),
         failed_process_);
    return;
  }
  if (!paused_since_) {
    paused_since_ = now;
    told_pause_ = now - kPauseTold;
  }
  const Time limit = *paused_since_ + duration_of(limits_.pause_seconds);
  if (now >= limit) {
    over(kExitFailed,
         cat("the job has ", found, " of at least ", count_of_ranks(limits_.least),
             ", and no others came within ", limits_.pause_seconds, " s (--elastic-timeout)",
             failure_.empty() ? "" : cat("; ", failure_)),
         failed_process_);
    return;
  }
  if (now >= told_pause_ + kPauseTold) {
    told_pause_ = now;
    actions_.say(cat(
        "the job pauses: it has ", found, " of at least ", count_of_ranks(limits_.least),
        failure_.empty() ? "" : cat(", since ", failure_), "; it waits for ", awaited_hosts(now)));
  }
  next_ = std::min({next_.value_or(Time::max()), limit, told_pause_ + kPauseTold});
}

// "rank 3 on host b".
std::string Generations::whose(int process) const {
  const int rank = rank_of(process);
  return cat(rank >= 0 ? cat("rank ", rank) : cat("process ", process), " on host ",
             hosts_.at(processes_.at(process).host).name);
}

void Generations::give_up_silent(Time now) {
  if (!asking_since_ || all_have_asked()) return;
  const Time named = *asking_since_ + kUntilNamed;
  Time since = *asking_since_;
  std::vector<int> silent;
  for (const auto& [number, process] : processes_) {
    const bool is_awaited =
        process.phase == Phase::kMember || (!current_ && process.phase == Phase::kStarting);
    if (!is_awaited) continue;
    silent.push_back(number);
    since = std::max(since, process.since);
  }
  const Time limit = since + duration_of(limits_.return_seconds);
  if (now >= limit) {
    for (const int process : silent) {
      if (!is_live(process)) continue;
      fail(process, kExitFailed,
           cat(whose(process), " has not called hvd.init within ", limits_.return_seconds,
               " s of the others (--start-timeout)"),
           now);
      end_alone(process);
    }
    return;
  }
  if (now >= named && !std::exchange(has_named_silent_, true)) {
    std::vector<std::string> names;
    for (const int process : silent) names.push_back(whose(process));
    actions_.say(cat("the next generation waits for ", join(names, ", "), ", up to ",
                     limits_.return_seconds, " s"));
  }
  next_ = std::min({next_.value_or(Time::max()), limit, has_named_silent_ ? limit : named});
}

// Ends processes that have not asked for their first place in time. The ranks do not wait for them.
void Generations::give_up_slow(Time now) {
  if (!current_ || finishing_) return;
  // The first ranks have shown how long the program needs before it calls hvd.init.
  const Clock::duration limit = first_start_ + duration_of(limits_.return_seconds);
  const auto in_seconds = [](Clock::duration time) {
    return std::chrono::round<seconds>(time).count();
  };
  for (auto& [number, process] : processes_) {
    const HostState& host = hosts_.at(process.host);
    if (process.phase != Phase::kStarting || !host.is_prepared) continue;
    const Time end = process.since + limit;
    const std::string silence = cat(whose(number), " has not called hvd.init within ");
    if (now >= end) {
      const auto beyond = in_seconds(first_start_);
      const std::string bound = cat(
          in_seconds(limit), " s of its start",
          beyond == 0 ? ""
                      : cat(", ", limits_.return_seconds, " s more than the first ranks needed"),
          " (--start-timeout); ");
      actions_.say(cat(silence, bound, start_another_later(host.name, now)));
      dismiss(number);
      continue;
    }
    Time& told = process.told;
    told = std::max(told, process.since);
    if (now >= told + kPauseTold) {
      told = now;
      actions_.say(cat(silence, in_seconds(now - process.since),
                       " s of its start; it is ended after ", in_seconds(limit), " s"));
    }
    next_ = std::min({next_.value_or(Time::max()), end, told + kPauseTold});
  }
}

void Generations::count_reset(const std::string& why, Time now) {
  if (limits_.resets) history_.resets.push_back({now, generation() + 1, why});
}

// The cause of the generation that begins, for the sentence of --reset-limit.
std::string Generations::why_it_resets() const {
  if (!failure_.empty()) return failure_;
  const bool is_growth = (announced_ & rendezvous::kHostsAdded) != 0;
  const bool is_loss = (announced_ & rendezvous::kHostsRemoved) != 0;
  return is_growth && is_loss ? "new ranks were ready, and others left"
         : is_growth          ? "new ranks were ready"
         : is_loss            ? "ranks left"
                              : "the ranks asked for it, after an error of theirs";
}

bool Generations::may_reset(Time now) {
  if (!limits_.resets) return true;
  if (limits_.resets->seconds) {
    const Time first = now - duration_of(*limits_.resets->seconds);
    std::erase_if(history_.resets, [&](const auto& reset) { return reset.time < first; });
  }
  return std::ssize(history_.resets) < limits_.resets->resets;
}

int Generations::live_members() const {
  if (!current_) return 0;
  return static_cast<int>(std::count_if(
      current_->members.begin(), current_->members.end(),
      [this](const Member& member) { return is_live(static_cast<int>(member.incarnation)); }));
}

// Without those that are to leave.
int Generations::staying_members() const {
  const std::vector<int> ranks = members();
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [this](int number) {
    const Process& process = processes_.at(number);
    return is_live(number) && !process.is_removed && !hosts_.at(process.host).is_leaving;
  }));
}

int Generations::members_of(const std::string& host) const {
  if (!current_) return 0;
  return static_cast<int>(
      std::count_if(current_->members.begin(), current_->members.end(), [&](const Member& member) {
        return member.host == host && is_live(static_cast<int>(member.incarnation));
      }));
}

// Whether the next generation would have this process, which asks and is no member.
bool Generations::has_spare_place(const Process& process) const {
  const HostState& state = hosts_.at(process.host);
  const bool is_ready =
      process.phase == Phase::kAsking || (process.phase == Phase::kHeld && state.is_prepared);
  if (!is_ready || state.is_leaving || state.is_gone) return false;
  if (limits_.most && staying_members() >= *limits_.most) return false;
  return std::any_of(pool_.offered().begin(), pool_.offered().end(), [&](const Host& host) {
    return host.name == state.name && members_of(host.name) < host.slots;
  });
}

// kHostsAdded when processes are ready that would start with the next generation, or with the next start of all.
int32_t Generations::slots_ready(Time now) {
  const bool is_ready = std::any_of(processes_.begin(), processes_.end(), [this](const auto& one) {
    return !is_member(one.first) && has_spare_place(one.second);
  });
  if (!is_ready) {
    ready_since_.reset();
    return rendezvous::kHostsUnchanged;
  }
  ready_since_ = ready_since_.value_or(now);
  const bool may_come = std::any_of(processes_.begin(), processes_.end(), [this](const auto& one) {
    return one.second.phase == Phase::kStarting ||
           (one.second.phase == Phase::kHeld && !hosts_.at(one.second.host).is_prepared);
  });
  const Time when = may_come ? *ready_since_ + kGathering : *ready_since_;
  if (now >= when) return rendezvous::kHostsAdded;
  next_ = std::min(next_.value_or(Time::max()), when);
  return rendezvous::kHostsUnchanged;
}

// Tells the ranks of changes that are ready, so that they ask for places at their next commit.
void Generations::announce(Time now) {
  if (!current_ || finishing_) return;
  int32_t updates = announced_;
  for (const auto& [number, host] : hosts_) {
    if (host.is_leaving && !host.is_gone) updates |= rendezvous::kHostsRemoved;
  }
  for (const Host& host : pool_.offered()) {
    if (members_of(host.name) > host.slots) updates |= rendezvous::kHostsRemoved;
  }
  if (limits_.most && live_members() > *limits_.most) updates |= rendezvous::kHostsRemoved;
  for (const Member& member : current_->members) {
    const auto process = static_cast<int>(member.incarnation);
    if (is_live(process) && processes_.at(process).is_removed) updates |= rendezvous::kHostsRemoved;
  }
  if (all_joining_are_prepared()) updates |= rendezvous::kHostsAdded;
  if (is_assumed_ || restarts_program()) updates |= slots_ready(now);
  if (updates != rendezvous::kHostsUnchanged && restarts_program()) {
    // A rank may still be on its way to hvd.elastic.run.
    const Time when = begun_ + duration_of(limits_.return_seconds);
    if (now >= when) {
      const bool is_growth = updates == rendezvous::kHostsAdded;
      return restart(
          cat(is_growth ? "the slots for more ranks are ready" : "ranks are to leave the job",
              "; no rank has entered hvd.elastic.run, so all of them start again"),
          now);
    }
    next_ = std::min(next_.value_or(Time::max()), when);
  }
  if ((is_assumed_ && !limits_.may_be_originals) || updates == announced_) return;
  announced_ = updates;
  actions_.tell_updates(generation(), static_cast<rendezvous::HostUpdates>(updates));
}

void Generations::consider(Time now) {
  next_.reset();
  if (is_over_) return;
  if (finishing_) {
    finish();
    return;
  }
  if (suspect_) {
    const Time when = suspect_->since + duration_of(limits_.cause_seconds);
    if (now < when && has_live_member_beside(processes_.at(suspect_->process).host)) {
      next_ = when;
      return;
    }
    decide_suspect(now);
    if (is_over_) return;
  }
  mark_leaving();
  give_up_silent(now);
  if (is_over_) return;
  give_up_unprepared(now);
  if (is_over_) return;
  const bool has_live_member =
      !current_ ||
      std::any_of(current_->members.begin(), current_->members.end(),
                  [this](const Member& one) { return is_live(static_cast<int>(one.incarnation)); });
  if (!has_live_member || (live_processes() == 0 && !processes_.empty())) {
    over(failure_code_ != 0 ? failure_code_ : kExitFailed,
         failure_.empty() ? "no rank is left that has the state of the training" : failure_,
         failed_process_);
    return;
  }
  name_unaware(now);
  if (is_over_) return;
  give_up_slow(now);
  drop_surplus();
  plan_newcomers(now);
  start_hosts(now);
  announce(now);
  if (is_over_) return;
  const bool is_asked = std::any_of(processes_.begin(), processes_.end(), [this](const auto& one) {
    return one.second.phase == Phase::kAsking && (!current_ || is_member(one.first));
  });
  if (!is_asked || !all_have_asked() || ends_by_repetition()) return;
  MembershipPlan plan = next();
  // Also a process whose first generation was void may be given another place.
  while (auto* const generation = std::get_if<Generation>(&plan)) {
    std::set<int> processes;
    for (const Member& one : generation->members)
      processes.insert(static_cast<int>(one.incarnation));
    if (!start_misplaced_again(processes, *generation)) break;
    plan = next();
  }
  if (const auto* few = std::get_if<TooFew>(&plan)) {
    std::set<int> newcomers;
    for (const auto& [number, process] : processes_) {
      if (!is_member(number) && process.phase == Phase::kAsking) newcomers.insert(number);
    }
    const MembershipPlan with_new = plan_joining(newcomers);
    const auto* const still_few = std::get_if<TooFew>(&with_new);
    pause(still_few != nullptr ? still_few->slots : few->slots, now);
    return;
  }
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr) {
    over(kExitFailed, "no rank is left that has the state of the training", failed_process_);
    return;
  }
  if (current_ && !may_reset(now)) {
    return end_by_reset_limit();
  }
  // Those that leave have asked with the others, and are no longer needed.
  begin(std::move(*generation), now);
  for (auto& [number, host] : hosts_) {
    if (host.is_leaving && members_of(host.name) == 0) drop_host(host);
  }
  let_hosts_go(now);
  consider(now);
}

void Generations::on_time(Time now) { consider(now); }

int Generations::offered_slots() const {
  int slots = 0;
  for (const Host& host : pool_.offered()) slots += usable_slots(host);
  return slots;
}

// Whether a user may change the ranks now.
Status Generations::may_change(Time now) {
  if (is_over_ || finishing_) return failed_precondition("the job ends");
  if (!current_) return failed_precondition("the ranks of the job have not begun yet");
  if (!may_reset(now)) {
    return failed_precondition("the ranks of the job may not change again (--reset-limit)");
  }
  return {};
}

Result<std::string> Generations::resize(int ranks, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  if (ranks < limits_.least) {
    return invalid_argument(cat("the job needs at least ", count_of_ranks(limits_.least),
                                limits_.least == 1 ? "" : " (--min-np)"));
  }
  int all = 0;
  for (const Host& host : pool_.named()) all += usable_slots(host);
  if (ranks > all && !limits_.finds_hosts) {
    return invalid_argument(cat("the hosts of the job have slots for ", count_of_ranks(all)));
  }
  if (ranks > offered_slots() && pool_.has_removals()) {
    // An agent that ends cannot be kept.
    pool_.take_back([this](const std::string& name) {
      return std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& one) {
        const HostState& host = one.second;
        return host.name == name && !host.why_it_ends.empty() && !host.is_gone;
      });
    });
    for (auto& [number, process] : processes_) process.is_removed = false;
  }
  const int slots = offered_slots();
  const int members = live_members();
  limits_.most = history_.most = ranks;
  std::string sentence =
      ranks < members    ? cat("the job goes from ", members, " to ", count_of_ranks(ranks), " ",
                               when_they_leave("they", now))
      : ranks == members ? cat("the job has ", count_of_ranks(ranks), ", and gets no more")
      : ranks <= slots
          ? cat("the job goes from ", members, " to ", ranks,
                restarts_program() ? " ranks when the slots for the new ones are ready"
                                   : " ranks when the new ones have started")
          : cat("the job goes from ", members, " to ", ranks,
                limits_.hosts_join ? " ranks when hosts join for them; those of now have "
                                   : " ranks when the discovery script names hosts for them; it "
                                     "names ",
                slots, " slots");
  consider(now);
  return sentence;
}

// Whether the process was a rank of a generation whose ranks have met, as far as the launcher knows.
bool Generations::has_met(int process) const { return processes_.at(process).generation >= 0; }

// An agent that joined by itself starts no further processes.
int Generations::usable_slots(const Host& host) const {
  if (pool_.is_excluded_for_ever(host.name)) return 0;
  const int live = live_processes(host.name);
  return limits_.hosts_join && live > 0 ? std::min(host.slots, live) : host.slots;
}

// Whether a rank stays after the next commit if this host leaves.
bool Generations::has_state_without(const std::string& host) const {
  if (!current_) return false;
  const auto stays = [&](const Member& member) {
    const auto process = static_cast<int>(member.incarnation);
    return member.host != host && is_live(process) && has_met(process) &&
           !processes_.at(process).is_removed && !hosts_.at(processes_.at(process).host).is_leaving;
  };
  return std::any_of(current_->members.begin(), current_->members.end(), stays);
}

// `slots`: how many the host is to have. The job must have enough without the others, and its state.
Status Generations::may_remove(const std::string& host, int slots, const std::string& what) const {
  int offered = 0;
  for (const Host& other : pool_.offered()) {
    const int usable = usable_slots(other);
    offered += other.name == host ? std::min(usable, slots) : usable;
  }
  if (offered < limits_.least) {
    return failed_precondition(cat("without ", what, " the hosts of the job have slots for ",
                                   count_of_ranks(offered), ", and the job needs at least ",
                                   limits_.least));
  }
  if (has_state_without(slots > 0 ? "" : host)) return {};
  return failed_precondition(
      cat("without ", what, " no rank is left that has the state of the training"));
}

Result<std::string> Generations::remove_host(const std::string& name, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  std::vector<std::string> names;
  for (const Host& host : pool_.offered()) names.push_back(host.name);
  const std::string what = cat("host ", name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return not_found(cat(what, " is not one of the hosts that the job uses: ", join(names, ", ")));
  }
  HVD_RETURN_IF_ERROR(may_remove(name, 0, what));
  const bool has_ranks = members_of(name) > 0;
  const std::string when = when_they_leave("its ranks", now);
  pool_.remove(name, 0);
  consider(now);
  return cat(what, has_ranks ? cat(" leaves the job ", when) : " is not used by the job",
             "; its slots stay empty until horovodrun resize needs them",
             limits_.hosts_join    ? ", or another agent joins there"
             : limits_.finds_hosts ? ", or the discovery script names it anew"
                                   : "");
}

void Generations::host_leaves(int host, const std::string& why, double seconds, Time now) {
  HostState& state = hosts_.at(host);
  if (is_over_ || finishing_ || state.is_gone) return;
  state.why_it_ends = cat("host ", state.name, " leaves the job: ", why);
  state.ends_at = now + duration_of(seconds);
  actions_.tell_leave(host, seconds);
  if (current_ && !has_state_without(state.name)) {
    actions_.say(cat(state.why_it_ends,
                     "; no other host has the state of the training, and it ends in ", seconds,
                     " s (--leave-grace)"));
    return;
  }
  let_go(state, now);
  consider(now);
}

// Its ranks leave at their next commit.
void Generations::let_go(const HostState& host, Time now) {
  const auto left = std::chrono::round<std::chrono::seconds>(host.ends_at - now).count();
  actions_.say(restarts_program() ? cat(host.why_it_ends, "; it ends in ", left,
                                        " s at the latest (--leave-grace)")
                                  : cat(host.why_it_ends, "; its ranks have ", left,
                                        " s for their next commit (--leave-grace)"));
  if (failure_.empty() && members_of(host.name) > 0) {
    failure_code_ = kExitFailed;
    failure_ = host.why_it_ends;
    failed_process_ = -1;
  }
  pool_.remove(host.name, 0);
}

// The hosts that are about to end, and were the only ones with the state until now.
void Generations::let_hosts_go(Time now) {
  for (const auto& [number, host] : hosts_) {
    const std::string& name = host.name;  // clang 14 captures no structured binding
    const bool is_offered = std::any_of(pool_.offered().begin(), pool_.offered().end(),
                                        [&name](const Host& one) { return one.name == name; });
    if (host.why_it_ends.empty() || host.is_gone || !is_offered) continue;
    if (!has_state_without(host.name)) continue;
    let_go(host, now);
  }
}

Result<std::string> Generations::remove_rank(int64_t rank, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  if (rank < 0 || rank >= current_->size()) {
    return not_found(cat("the job has no rank ", rank, "; its last one is ", current_->size() - 1));
  }
  const Member& member = current_->members[static_cast<size_t>(rank)];
  const auto number = static_cast<int>(member.incarnation);
  if (!is_live(number) || processes_.at(number).is_removed) {
    return failed_precondition(cat("rank ", rank, " leaves the job already"));
  }
  Process& process = processes_.at(number);
  process.is_removed = true;
  const int left = live_processes(member.host);
  const Status status = may_remove(member.host, left, cat("rank ", rank));
  if (!status.ok() || left == 0) process.is_removed = false;
  HVD_RETURN_IF_ERROR(status);
  if (left == 0) return remove_host(member.host, now);
  pool_.remove(member.host, left);
  std::string sentence = cat("rank ", rank, " on host ", member.host, " leaves the job ",
                             when_they_leave("the ranks", now), "; its slot stays empty",
                             limits_.hosts_join ? "" : " until horovodrun resize needs it");
  consider(now);
  return sentence;
}

Generations::Time Generations::next_time() const { return next_.value_or(Time::max()); }

}  // namespace hvd::launcher
