#include "launcher/elastic/generations.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include "base/text.h"
#include "launcher/plan/exit_codes.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

constexpr int kRestarts = 3;  // of a program after failures, unless the user says otherwise
// Hosts that become ready within this time cost one change of generation.
constexpr seconds kGathering{1};
constexpr char kNoState[] = "no rank is left that has the state of the training";

// Whether a rank may have ended so because another rank did: its libraries raise an error, or abort.
bool may_follow_another(int exit_code) {
  return exit_code < kExitSignal || exit_code == kExitSignal + SIGABRT ||
         exit_code == kExitSignal + SIGPIPE;
}

}  // namespace

Generations::Generations(const GenerationLimits& limits, GenerationActions& actions,
                         JobHistory& history)
    : limits_(limits), actions_(actions), history_(history), pool_(history.pool) {
  if (history_.most) limits_.most = history_.most;
}

void Generations::discovered(std::vector<Host> hosts, Time now) {
  pool_.discovered(std::move(hosts));
  if (!std::exchange(has_begun_, true)) {
    deadlines_.launch_began(now);
    if (limits_.restarts_programs) assume_ranks();
  }
  consider(now);
}

void Generations::add(int host, const std::string& name, int first, int count) {
  JobHost& state = table_.hosts[host];
  state.name = name;
  for (int number = first; number < first + count; ++number) {
    const int slot = table_.free_slot(name);
    state.processes.push_back(number);
    table_.processes[number] = {
        .host = host,
        .slot = slot,
        .phase = is_assumed_ ? ProcessPhase::kHeld : ProcessPhase::kStarting};
  }
}

void Generations::prepared(int host, Time now) {
  JobHost& state = table_.hosts.at(host);
  if (state.is_gone) return;
  state.is_prepared = true;
  note_start(host, now);
  if (!is_assumed_) actions_.start_processes(host);
  consider(now);
}

// The processes of a host that has come later start now.
void Generations::note_start(int host, Time now) {
  for (const int process : table_.hosts.at(host).processes)
    table_.processes.at(process).since = now;
}

void Generations::takes_part(Time now) {
  if (!std::exchange(takes_part_, true)) deadlines_.entered_elastic_run(now);
  consider(now);
}

void Generations::runs(int process, bool is_inside) {
  if (!table_.is_live(process)) return;
  table_.processes.at(process).is_in_run = is_inside;
}

// Until a process asks for a place, and for ever if the program does not use Horovod, the ranks are those
// with which the launch began.
void Generations::assume_ranks() {
  Generation generation;
  generation.number = history_.generation;
  for (auto& [number, process] : table_.processes) {
    generation.members.push_back({.host = table_.hosts.at(process.host).name,
                                  .slot = process.slot,
                                  .incarnation = number,
                                  .is_new = true});
    process.phase = ProcessPhase::kMember;
    process.generation = history_.generation;
  }
  table_.current = std::move(generation);
  is_assumed_ = true;
}

void Generations::drop_assumption(Time now) {
  if (!std::exchange(is_assumed_, false)) return;
  table_.current.reset();
  for (auto& [number, process] : table_.processes) {
    if (process.phase != ProcessPhase::kMember && process.phase != ProcessPhase::kHeld) continue;
    process.phase = ProcessPhase::kStarting;
    process.generation = -1;
  }
  for (const auto& [number, host] : table_.hosts) {
    if (!host.is_prepared || host.is_gone) continue;
    note_start(number, now);
    actions_.start_processes(number);
  }
}

void Generations::start_failed(int host, const std::string& sentence, Time now) {
  JobHost& state = table_.hosts.at(host);
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
  if (!table_.is_live(process)) return;
  JobProcess& one = table_.processes.at(process);
  if (request.number <= one.request) return;
  drop_assumption(now);
  one.phase = ProcessPhase::kAsking;
  one.request = request.number;
  one.generation = request.generation;
  one.takes_any_place = request.from == rendezvous::PlaceRequestFrom::kElasticRun;
  if (request.from == rendezvous::PlaceRequestFrom::kInit || request.generation >= 0) {
    one.provisional.reset();
  }
  repetition_.committed(request.generation, request.commits);
  if (!table_.current || table_.is_member(process)) deadlines_.asked(now);
  consider(now);
}

bool Generations::ended(int process, int exit_code, const std::string& sentence, Time now,
                        const std::string& exception) {
  if (is_over_ || !table_.is_live(process)) return true;
  if (exit_code == 0 && table_.processes.at(process).is_in_run) {
    const std::string early =
        cat(table_.whose(process), " exited with code 0 inside hvd.elastic.run");
    return ended(process, kExitLauncher, early, now);
  }
  if (exit_code != 0 && table_.is_member(process) && !finishing_ && !restarts_program()) {
    const JobProcess& one = table_.processes.at(process);
    repetition_.failed(exception, exit_code,
                       {.process = process,
                        .slot = one.slot,
                        .generation = generation(),
                        .host = table_.hosts.at(one.host).name,
                        .whose = table_.whose(process),
                        .sentence = sentence});
  }
  if (exit_code != 0 && finishing_ && table_.is_member(process)) {
    over(exit_code, cat(sentence, "; ", join(finished_, ", "), " had exited with code 0"), process);
    return false;
  }
  if (exit_code != 0) {
    fail(process, exit_code, sentence, now);
  } else {
    table_.processes.at(process).phase = ProcessPhase::kGone;
    // A process that was no rank yet has done no work.
    if (!table_.current || table_.is_member(process)) {
      if (!suspect_) finishing_ = finishing_.value_or(now);
      finished_.push_back(table_.whose(process));
    } else if (!finishing_) {
      actions_.say(
          cat(table_.whose(process), " exited with code 0 before it was a rank; ",
              start_another_later(table_.hosts.at(table_.processes.at(process).host).name, now)));
    }
  }
  consider(now);
  return true;
}

bool Generations::host_lost(int host, const std::string& sentence, Time now) {
  JobHost& state = table_.hosts.at(host);
  if (is_over_ || state.is_gone) return true;
  const auto found = std::find_if(state.processes.begin(), state.processes.end(),
                                  [this](int process) { return table_.is_live(process); });
  if (found == state.processes.end()) {
    state.is_gone = true;
    return true;
  }
  const bool was_member = std::any_of(
      state.processes.begin(), state.processes.end(),
      [this](int process) { return table_.is_live(process) && table_.is_member(process); });
  if (was_member || !table_.current) failure_.note(kExitLauncher, sentence, -1);
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
bool Generations::has_worked(const std::string& host) const { return table_.members_of(host) > 0; }

// After the end of a process that has done no work yet, beside ranks that work.
std::string Generations::start_another_later(const std::string& name, Time now) {
  const auto wait = pool_.retry_later(name, seconds(5), seconds(300), now);
  return cat(
      "the job goes on without it",
      limits_.hosts_join ? "" : cat(", and starts another one there in ", wait.count(), " s"));
}

// Ends what still runs there.
void Generations::drop_host(JobHost& host) {
  if (std::exchange(host.is_gone, true)) return;
  for (const int process : host.processes) table_.processes.at(process).phase = ProcessPhase::kGone;
  for (const auto& [number, state] : table_.hosts) {
    if (&state == &host) actions_.end_host(number);
  }
}

// Ends a process that has lost its place.
void Generations::dismiss(int process) {
  if (std::exchange(table_.processes.at(process).phase, ProcessPhase::kGone) == ProcessPhase::kGone)
    return;
  end_alone(process);
}

// Ends a process that no longer counts, and its host if no other process runs there.
void Generations::end_alone(int process) {
  JobHost& host = table_.hosts.at(table_.processes.at(process).host);
  if (host.is_gone) return;
  const bool is_last = std::none_of(host.processes.begin(), host.processes.end(),
                                    [this](int other) { return table_.is_live(other); });
  if (is_last)
    drop_host(host);
  else
    actions_.end_process(process);
}

// Ends processes that are no ranks and can become none: the last started ones.
void Generations::drop_surplus() {
  if (!table_.current) return;
  for (auto last = table_.processes.rbegin(); last != table_.processes.rend(); ++last) {
    const auto& [number, process] = *last;
    if (process.phase == ProcessPhase::kGone || table_.is_member(number)) continue;
    const std::string& name = table_.hosts.at(process.host).name;
    const bool is_above_slots =
        std::any_of(pool_.offered().begin(), pool_.offered().end(), [&](const Host& host) {
          return host.name == name && table_.live_processes(name) > host.slots;
        });
    if (is_above_slots || (limits_.most && table_.staying_processes() > *limits_.most))
      dismiss(number);
  }
}

// The rank that failed first is the cause, since no other one was found.
void Generations::decide_suspect(Time now) {
  const Suspect suspect = *std::exchange(suspect_, {});
  fail(suspect.process, suspect.exit_code, suspect.sentence, now, suspect.since);
}

void Generations::fail(int process, int exit_code, const std::string& sentence, Time now) {
  JobProcess& one = table_.processes.at(process);
  one.phase = ProcessPhase::kGone;
  if (table_.is_member(process) && restarts_program() && may_follow_another(exit_code)) {
    // Another host may be lost, which is known later, or its kernel may have killed a rank.
    if (!suspect_) suspect_ = {process, exit_code, sentence, now};
    if (!table_.has_live_member_beside(table_.processes.at(suspect_->process).host))
      decide_suspect(now);
    return;
  }
  suspect_.reset();
  fail(process, exit_code, sentence, now, now);
}

void Generations::fail(int process, int exit_code, const std::string& sentence, Time now,
                       Time since) {
  const JobProcess& one = table_.processes.at(process);
  const bool was_member = table_.is_member(process);
  // A process that was no rank yet takes nothing from the others.
  if (was_member || !table_.current) failure_.note(exit_code, sentence, process);
  JobHost& host = table_.hosts.at(one.host);
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
    for (auto& [number, state] : table_.hosts) {
      if (state.name == name) drop_host(state);
    }
  }
  const std::string words = after.empty() ? sentence : cat(sentence, "; ", after);
  if (was_member && restarts_program()) return restart_after_failure(words, exit_code, since, now);
  if (table_.live_processes() > 0 && !finishing_) actions_.say(words);
  if (was_member) tell_loss(sentence, now);
}

// Whether the present ranks cannot live through a change, as far as the launcher knows.
bool Generations::restarts_program() const {
  return limits_.restarts_programs && !takes_part_ && !finishing_ && !is_over_ && table_.current;
}

// When ranks that are to leave do so.
std::string Generations::when_they_leave(const std::string& whose, Time now) const {
  const Time last = deadlines_.end_of_entry();
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
  if (!limits_.most_restarts && exit_code < kExitSignal && since < deadlines_.end_of_entry()) {
    return over(
        failure_.exit_code(),
        cat(failure_.sentence(), "; the ranks are not started again after a failure within ",
            limits_.return_seconds,
            " s of their start (--start-timeout) unless --max-restarts is given"));
  }
  const int most = limits_.most_restarts.value_or(kRestarts);
  if (history_.restarts >= most) {
    return over(failure_.exit_code(),
                cat(failure_.sentence(),
                    most == 0 ? ""
                              : cat("; the job has been started again ", history_.restarts,
                                    history_.restarts == 1 ? " time" : " times",
                                    ", and may not be again (--max-restarts)")));
  }
  ++history_.restarts;
  restart(
      cat(sentence, "; no rank has entered hvd.elastic.run, so all of them start again (restart ",
          history_.restarts, " of ", most, ")"),
      now);
}

// Ends the launch. The next one has the hosts that there are then.
void Generations::restart(const std::string& why, Time now) {
  if (capacity_.offered() < limits_.least && !may_grow()) {
    return over(
        failure_.exit_code(),
        failure_.before(cat("the job needs at least ", count_of_ranks(limits_.least),
                            " (--min-np), and its hosts have slots for ", capacity_.offered())));
  }
  if (!may_reset(now)) return end_by_reset_limit();
  count_reset(
      failure_.is_noted() ? failure_.sentence() : "the program started again with other ranks",
      now);
  history_.generation = generation() + 1;
  history_.failure = failure_.sentence();
  history_.failure_code = failure_.is_noted() ? failure_.exit_code() : 0;
  history_.hosts.clear();
  for (const Member& member : table_.current->members) history_.hosts.push_back(member.host);
  actions_.say(why);
  is_over_ = true;
  actions_.restart();
}

void Generations::tell_loss(const std::string& sentence, Time now) {
  deadlines_.rank_lost(now);
  actions_.tell_loss(generation(), sentence);
}

void Generations::check_unaware(Time now) {
  const auto found = deadlines_.unaware(now, failure_.sentence());
  if (found.end) return over(failure_.exit_code(), failure_.before(*found.end));
  say_all(found.reminders);
  wake_at(found.next);
}

// The ranks train meanwhile.
void Generations::check_unprepared(Time now) {
  if (!takes_part_) return;
  const auto found = deadlines_.unprepared(now);
  for (const auto& [process, sentence] : found.late) {
    if (!table_.is_live(process)) continue;
    dismiss(process);
    fail(process, kExitLauncher, sentence, now);
  }
  say_all(found.reminders);
  wake_at(found.next);
}

void Generations::start_hosts(Time now) {
  if (finishing_ || is_over_) return;
  for (const Host& host : pool_.offered()) {
    if (!pool_.may_start(host.name, now)) continue;
    if (limits_.hosts_join && table_.live_processes(host.name) > 0) continue;
    int wanted = host.slots - table_.live_processes(host.name);
    if (limits_.most) wanted = std::min(wanted, *limits_.most - table_.staying_processes());
    if (wanted <= 0) continue;
    note_start(actions_.start_host(host, wanted), now);
  }
  if (const auto time = pool_.next_start(now)) wake_at(*time);
}

void Generations::mark_leaving() {
  for (auto& [number, host] : table_.hosts) {
    const auto is_it = [&name = host.name](const Host& one) { return one.name == name; };
    host.is_leaving =
        !host.is_gone && std::none_of(pool_.offered().begin(), pool_.offered().end(), is_it);
    if (!host.is_leaving) continue;
    // Nobody needs what has not begun to work.
    const bool has_member = std::any_of(
        host.processes.begin(), host.processes.end(),
        [this](int process) { return table_.is_live(process) && table_.is_member(process); });
    if (!has_member) drop_host(host);
  }
}

GenerationRules Generations::next_rules() const {
  return {.least = limits_.least, .most = limits_.most, .number = generation() + 1};
}

// The next generation if these processes join all ranks that do not leave.
MembershipPlan Generations::plan_joining(const std::set<int>& newcomers) const {
  return plan_generation(table_, pool_, next_rules(), [this, &newcomers](int process) {
    return table_.is_member(process) ? table_.is_live(process) : newcomers.contains(process);
  });
}

// While ranks train, gathers the processes that ask to join them, and tells these the places that they will have.
void Generations::plan_newcomers(Time now) {
  if (finishing_ || is_over_ || is_assumed_ || restarts_program() || !table_.has_survivor()) return;
  check_joining();
  if (joining_.generation() == nullptr) {
    std::set<int> ready;
    for (const auto& [number, process] : table_.processes) {
      if (!table_.is_member(number) && capacity_.has_place_for(process)) ready.insert(number);
    }
    if (ready.empty()) return ready_since_.reset();
    ready_since_ = ready_since_.value_or(now);
    const bool may_come =
        std::any_of(table_.processes.begin(), table_.processes.end(),
                    [](const auto& one) { return one.second.phase == ProcessPhase::kStarting; });
    const Time when = may_come ? *ready_since_ + kGathering : *ready_since_;
    if (now < when) {
      wake_at(when);
      return;
    }
    ready_since_.reset();
    deadlines_.plan_made();
    joining_.set(plan_joining(ready));
  }
  for (const auto& [process, answer] : joining_.tell_places(now)) {
    actions_.answer(process, table_.processes.at(process).request, answer);
    wake_at(now + Deadlines::kUntilNamed);
  }
}

// Makes the plan anew with the ranks and newcomers that there are.
void Generations::check_joining() {
  while (joining_.generation() != nullptr) {
    const std::set<int> newcomers = joining_.newcomers();
    JoiningPlan next(table_);
    next.set(plan_joining(newcomers));
    const Generation nobody;
    if (start_misplaced_again(newcomers, next.generation() ? *next.generation() : nobody)) continue;
    joining_.set(next.generation() ? MembershipPlan(*next.generation()) : Unchanged());
    return;
  }
}

// Ends those of the processes that cannot take their places of this generation. Whether there were any.
bool Generations::start_misplaced_again(const std::set<int>& processes,
                                        const Generation& generation) {
  const std::vector<int> found = misplaced(table_, processes, generation);
  for (const int process : found) {
    actions_.say(cat(
        table_.whose(process), " ends, since the place that it was given in hvd.init has changed; ",
        limits_.hosts_join ? cat("host ", table_.hosts.at(table_.processes.at(process).host).name,
                                 " is used again when an agent joins there")
                           : "another one starts"));
    dismiss(process);
  }
  return !found.empty();
}

// The members if the next generation began now: of those who have asked.
MembershipPlan Generations::next() const {
  const bool has_state = table_.has_survivor();
  if (has_state && joining_.is_prepared()) {
    Generation generation = *joining_.generation();
    generation.number = this->generation() + 1;
    return generation;
  }
  return plan_generation(table_, pool_, next_rules(), [this, has_state](int number) {
    const JobProcess& process = table_.processes.at(number);
    return process.phase == ProcessPhase::kAsking && (table_.is_member(number) || !has_state);
  });
}

void Generations::begin(Generation generation, Time now) {
  if (table_.current) count_reset(why_it_resets(), now);
  deadlines_.generation_began(now);
  paused_since_.reset();
  pause_.stop();
  ready_since_.reset();
  notice_.clear();
  failure_.clear();
  if (table_.current) {
    const std::string left = history_.resets.left(limits_.resets);
    actions_.say(cat("generation ", generation.number, ": ",
                     count_of_ranks(std::ssize(generation.members)), left));
  }
  const rendezvous::Generation record = record_of(generation);
  actions_.begin_generation(record);
  if (table_.has_survivor() && joining_.is_prepared()) joining_.drop();  // this is it
  table_.current = std::move(generation);
  const std::vector<rendezvous::PlaceAnswer> answers = answers_of(record);
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    const int number = record.members[rank].process;
    JobProcess& process = table_.processes.at(number);
    actions_.answer(number, process.request, answers[rank]);
    process.phase = ProcessPhase::kMember;
    process.generation = record.number;
  }
  for (const Member& member : table_.current->removed)
    dismiss(static_cast<int>(member.incarnation));
}

void Generations::say_all(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) actions_.say(sentence);
}

void Generations::over(int exit_code, const std::string& sentence) {
  over(exit_code, sentence, failure_.process());
}

void Generations::over(int exit_code, const std::string& sentence, int process) {
  if (std::exchange(is_over_, true)) return;
  actions_.end_job(exit_code, sentence, process);
}

// No generation begins for a rank that asks for one when others have ended their work.
void Generations::check_unfinished() {
  std::vector<std::string> left;
  bool asks = false;
  for (const int process : table_.members()) {
    if (!table_.is_live(process) || !table_.processes.at(process).is_in_run) continue;
    left.push_back(table_.whose(process));
    asks |= table_.processes.at(process).phase == ProcessPhase::kAsking;
  }
  if (!asks) return;
  over(kExitLauncher,
       failure_.before(cat(join(finished_, ", "), " exited with code 0, and ", join(left, ", "),
                           left.size() == 1 ? " is ended before its" : " are ended before their",
                           " training has: the remaining ranks ask for another generation, which "
                           "the job cannot begin when a rank has ended its work")));
}

// A rank has ended its work: no further generation begins.
void Generations::finish() {
  check_unfinished();
  for (auto& [number, host] : table_.hosts) {
    const bool works = std::any_of(host.processes.begin(), host.processes.end(), [this](int one) {
      return table_.processes.at(one).phase == ProcessPhase::kMember ||
             (!table_.current && table_.processes.at(one).phase == ProcessPhase::kStarting);
    });
    const bool has_live = std::any_of(host.processes.begin(), host.processes.end(),
                                      [this](int one) { return table_.is_live(one); });
    if (has_live && !works) drop_host(host);
  }
}

// Whether other ranks than the present ones may come.
bool Generations::may_grow() const {
  return joining_.generation() != nullptr || ready_since_ || capacity_.may_grow();
}

void Generations::pause(int found, Time now) {
  if (!may_grow()) {
    return over(failure_.exit_code(),
                failure_.before(cat("the job needs at least ", count_of_ranks(limits_.least),
                                    " (--min-np), and has ", found)));
  }
  paused_since_ = paused_since_.value_or(now);
  const Time limit = *paused_since_ + duration_of(limits_.pause_seconds);
  if (now >= limit) {
    return over(kExitLauncher,
                cat("the job has ", found, " of at least ", count_of_ranks(limits_.least),
                    ", and no others came within ", limits_.pause_seconds, " s (--elastic-timeout)",
                    failure_.is_noted() ? cat("; ", failure_.sentence()) : ""));
  }
  pause_.start(now);
  if (pause_.is_due(now)) {
    actions_.say(cat("the job pauses: it has ", found, " of at least ",
                     count_of_ranks(limits_.least),
                     failure_.is_noted() ? cat(", since ", failure_.sentence()) : "",
                     "; it waits for ", capacity_.awaited_hosts(now)));
  }
  wake_at(std::min(limit, pause_.next()));
}

void Generations::check_silent(Time now) {
  const auto found = deadlines_.silent(now);
  for (const auto& [process, sentence] : found.late) {
    if (!table_.is_live(process)) continue;
    fail(process, kExitLauncher, sentence, now);
    end_alone(process);
  }
  say_all(found.reminders);
  wake_at(found.next);
}

// The ranks do not wait for them.
void Generations::check_slow(Time now) {
  const auto found = deadlines_.slow(now);
  for (const auto& [process, sentence] : found.late) {
    const std::string& host = table_.hosts.at(table_.processes.at(process).host).name;
    actions_.say(cat(sentence, "; ", start_another_later(host, now)));
    dismiss(process);
  }
  say_all(found.reminders);
  wake_at(found.next);
}

void Generations::end_by_reset_limit() {
  over(kExitLauncher, cat(history_.resets.sentence(),
                          failure_.is_noted() ? cat("; now ", failure_.sentence()) : ""));
}

void Generations::count_reset(const std::string& why, Time now) {
  history_.resets.count(generation() + 1, why, now);
}

// The cause of the generation that begins, for the sentence of --reset-limit.
std::string Generations::why_it_resets() const {
  return failure_.is_noted() ? failure_.sentence() : notice_.cause();
}

// kHostsAdded when processes are ready that would start with the next generation, or with the next start of all.
int32_t Generations::slots_ready(Time now) {
  const bool is_ready =
      std::any_of(table_.processes.begin(), table_.processes.end(), [this](const auto& one) {
        return !table_.is_member(one.first) && capacity_.has_place_for(one.second);
      });
  if (!is_ready) {
    ready_since_.reset();
    return rendezvous::kHostsUnchanged;
  }
  ready_since_ = ready_since_.value_or(now);
  const bool may_come =
      std::any_of(table_.processes.begin(), table_.processes.end(), [this](const auto& one) {
        return one.second.phase == ProcessPhase::kStarting ||
               (one.second.phase == ProcessPhase::kHeld &&
                !table_.hosts.at(one.second.host).is_prepared);
      });
  const Time when = may_come ? *ready_since_ + kGathering : *ready_since_;
  if (now >= when) return rendezvous::kHostsAdded;
  wake_at(when);
  return rendezvous::kHostsUnchanged;
}

// Tells the ranks of changes that are ready, so that they ask for places at their next commit.
void Generations::announce(Time now) {
  if (!table_.current || finishing_) return;
  int32_t updates = notice_.updates();
  for (const auto& [number, host] : table_.hosts) {
    if (host.is_leaving && !host.is_gone) updates |= rendezvous::kHostsRemoved;
  }
  for (const Host& host : pool_.offered()) {
    if (table_.members_of(host.name) > host.slots) updates |= rendezvous::kHostsRemoved;
  }
  if (limits_.most && table_.live_members() > *limits_.most) updates |= rendezvous::kHostsRemoved;
  for (const Member& member : table_.current->members) {
    const auto process = static_cast<int>(member.incarnation);
    if (table_.is_live(process) && table_.processes.at(process).is_removed)
      updates |= rendezvous::kHostsRemoved;
  }
  if (joining_.is_prepared()) updates |= rendezvous::kHostsAdded;
  if (is_assumed_ || restarts_program()) updates |= slots_ready(now);
  if (updates != rendezvous::kHostsUnchanged && restarts_program()) {
    // A rank may still be on its way to hvd.elastic.run.
    const Time when = deadlines_.end_of_entry();
    if (now >= when) {
      const bool is_growth = updates == rendezvous::kHostsAdded;
      return restart(
          cat(is_growth ? "the slots for more ranks are ready" : "ranks are to leave the job",
              "; no rank has entered hvd.elastic.run, so all of them start again"),
          now);
    }
    wake_at(when);
  }
  if (is_assumed_) return;
  if (notice_.set(updates, now)) {
    actions_.tell_updates(generation(), static_cast<rendezvous::HostUpdates>(updates));
  }
  if (deadlines_.is_asked()) return;
  if (const auto reminder = notice_.reminder(now)) actions_.say(*reminder);
  wake_at(notice_.next());
}

void Generations::consider(Time now) {
  next_ = Time::max();
  if (is_over_) return;
  if (finishing_) {
    finish();
    return;
  }
  if (suspect_) {
    const Time when = suspect_->since + duration_of(limits_.cause_seconds);
    if (now < when && table_.has_live_member_beside(table_.processes.at(suspect_->process).host)) {
      wake_at(when);
      return;
    }
    decide_suspect(now);
    if (is_over_) return;
  }
  mark_leaving();
  check_silent(now);
  if (is_over_) return;
  check_unprepared(now);
  if (is_over_) return;
  const bool has_live_member =
      !table_.current || std::any_of(table_.current->members.begin(), table_.current->members.end(),
                                     [this](const Member& one) {
                                       return table_.is_live(static_cast<int>(one.incarnation));
                                     });
  if (!has_live_member || (table_.live_processes() == 0 && !table_.processes.empty())) {
    return over(failure_.exit_code(), failure_.is_noted() ? failure_.sentence() : kNoState);
  }
  check_unaware(now);
  if (is_over_) return;
  check_slow(now);
  drop_surplus();
  plan_newcomers(now);
  start_hosts(now);
  announce(now);
  if (is_over_) return;
  const bool is_asked =
      std::any_of(table_.processes.begin(), table_.processes.end(), [this](const auto& one) {
        return one.second.phase == ProcessPhase::kAsking &&
               (!table_.current || table_.is_member(one.first));
      });
  if (!is_asked || !table_.all_have_asked()) return;
  if (const auto verdict = repetition_.verdict()) {
    return over(verdict->exit_code, verdict->sentence, verdict->process);
  }
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
    for (const auto& [number, process] : table_.processes) {
      if (!table_.is_member(number) && process.phase == ProcessPhase::kAsking)
        newcomers.insert(number);
    }
    const MembershipPlan with_new = plan_joining(newcomers);
    const auto* const still_few = std::get_if<TooFew>(&with_new);
    pause(still_few != nullptr ? still_few->slots : few->slots, now);
    return;
  }
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr) {
    return over(kExitLauncher, kNoState);
  }
  if (table_.current && !may_reset(now)) {
    return end_by_reset_limit();
  }
  // Those that leave have asked with the others, and are no longer needed.
  begin(std::move(*generation), now);
  for (auto& [number, host] : table_.hosts) {
    if (host.is_leaving && table_.members_of(host.name) == 0) drop_host(host);
  }
  let_hosts_go(now);
  consider(now);
}

void Generations::on_time(Time now) { consider(now); }

// Whether a user may change the ranks now.
Status Generations::may_change(Time now) {
  if (is_over_ || finishing_) return failed_precondition("the job ends");
  if (!table_.current) return failed_precondition("the ranks of the job have not begun yet");
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
  const int all = capacity_.named();
  if (ranks > all && !limits_.finds_hosts) {
    return invalid_argument(cat("the hosts of the job have slots for ", count_of_ranks(all)));
  }
  if (ranks > capacity_.offered() && pool_.has_removals()) {
    // An agent that ends cannot be kept.
    pool_.take_back([this](const std::string& name) {
      return std::any_of(table_.hosts.begin(), table_.hosts.end(), [&](const auto& one) {
        const JobHost& host = one.second;
        return host.name == name && !host.why_it_ends.empty() && !host.is_gone;
      });
    });
    for (auto& [number, process] : table_.processes) process.is_removed = false;
  }
  const int slots = capacity_.offered();
  const int members = table_.live_members();
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

Result<std::string> Generations::remove_host(const std::string& name, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  std::vector<std::string> names;
  for (const Host& host : pool_.offered()) names.push_back(host.name);
  const std::string what = cat("host ", name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return not_found(cat(what, " is not one of the hosts that the job uses: ", join(names, ", ")));
  }
  HVD_RETURN_IF_ERROR(capacity_.may_remove(name, 0, what));
  const bool has_ranks = table_.members_of(name) > 0;
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
  JobHost& state = table_.hosts.at(host);
  if (is_over_ || finishing_ || state.is_gone) return;
  state.why_it_ends = cat("host ", state.name, " leaves the job: ", why);
  state.ends_at = now + duration_of(seconds);
  actions_.tell_leave(host, seconds);
  if (table_.current && !capacity_.has_state_without(state.name)) {
    actions_.say(cat(state.why_it_ends,
                     "; no other host has the state of the training, and it ends in ", seconds,
                     " s (--leave-grace)"));
    return;
  }
  let_go(state, now);
  consider(now);
}

// Its ranks leave at their next commit.
void Generations::let_go(const JobHost& host, Time now) {
  const auto left = std::chrono::round<std::chrono::seconds>(host.ends_at - now).count();
  actions_.say(restarts_program() ? cat(host.why_it_ends, "; it ends in ", left,
                                        " s at the latest (--leave-grace)")
                                  : cat(host.why_it_ends, "; its ranks have ", left,
                                        " s for their next commit (--leave-grace)"));
  if (table_.members_of(host.name) > 0) failure_.note(kExitLauncher, host.why_it_ends, -1);
  pool_.remove(host.name, 0);
}

// The hosts that are about to end, and were the only ones with the state until now.
void Generations::let_hosts_go(Time now) {
  for (const auto& [number, host] : table_.hosts) {
    const std::string& name = host.name;  // clang 14 captures no structured binding
    const bool is_offered = std::any_of(pool_.offered().begin(), pool_.offered().end(),
                                        [&name](const Host& one) { return one.name == name; });
    if (host.why_it_ends.empty() || host.is_gone || !is_offered) continue;
    if (!capacity_.has_state_without(host.name)) continue;
    let_go(host, now);
  }
}

Result<std::string> Generations::remove_rank(int64_t rank, Time now) {
  HVD_RETURN_IF_ERROR(may_change(now));
  if (rank < 0 || rank >= table_.current->size()) {
    return not_found(
        cat("the job has no rank ", rank, "; its last one is ", table_.current->size() - 1));
  }
  const Member& member = table_.current->members[static_cast<size_t>(rank)];
  const auto number = static_cast<int>(member.incarnation);
  if (!table_.is_live(number) || table_.processes.at(number).is_removed) {
    return failed_precondition(cat("rank ", rank, " leaves the job already"));
  }
  JobProcess& process = table_.processes.at(number);
  process.is_removed = true;
  const int left = table_.live_processes(member.host);
  const Status status = capacity_.may_remove(member.host, left, cat("rank ", rank));
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

}  // namespace hvd::launcher
