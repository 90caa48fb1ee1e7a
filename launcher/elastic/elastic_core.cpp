#include "launcher/elastic/elastic_core.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

constexpr seconds kGathering{1};

}  // namespace

ElasticCore::ElasticCore(const GenerationLimits& given, GenerationActions& orders,
                         JobHistory& of_job)
    : limits(given), actions(orders), history(of_job), pool(of_job.pool) {
  if (history.most) limits.most = history.most;
}

void ElasticCore::to(JobStage following) {
  HVD_CHECK(may_follow(stage, following));
  stage = following;
}

bool ElasticCore::restarts_program() const {
  return limits.restarts_programs && table.current &&
         (stage == JobStage::kAssumed || stage == JobStage::kAsking);
}

int32_t ElasticCore::generation() const {
  return table.current ? table.current->number : history.generation - 1;
}

void ElasticCore::note_start(int host, Time now) {
  for (const RankRun* rank : table.hosts.at(host).run.ranks()) {
    table.processes.at(rank->number()).since = now;
  }
}

void ElasticCore::start_hosts(Time now) {
  if (training_end.has_come()) return;
  for (const Host& host : pool.offered()) {
    if (!pool.may_start(host.name, now)) continue;
    if (limits.hosts_join() && table.live_processes(host.name) > 0) continue;
    int wanted = host.slots - table.live_processes(host.name);
    if (limits.most) wanted = std::min(wanted, *limits.most - table.staying_processes());
    if (wanted <= 0) continue;
    note_start(actions.start_host(host, wanted), now);
  }
  if (const auto time = pool.next_start(now)) wake_at(*time);
}

void ElasticCore::mark_leaving() {
  for (auto& [number, host] : table.hosts) {
    if (host.use == HostUse::kGone) continue;
    const auto is_it = [&name = host.name()](const Host& one) { return one.name == name; };
    host.use = std::ranges::any_of(pool.offered(), is_it) ? HostUse::kUsed : HostUse::kLeaving;
    if (host.use == HostUse::kUsed) continue;
    const bool has_member = std::ranges::any_of(host.run.ranks(), [this](const RankRun* rank) {
      return table.is_live(rank->number()) && table.is_member(rank->number());
    });
    if (!has_member) drop_host(host);
  }
}

void ElasticCore::end_left_hosts() {
  for (auto& [number, host] : table.hosts) {
    if (host.use == HostUse::kLeaving && table.members_of(host.name()) == 0) drop_host(host);
  }
}

void ElasticCore::drop_host(JobHost& host) {
  if (std::exchange(host.use, HostUse::kGone) == HostUse::kGone) return;
  for (const RankRun* rank : host.run.ranks()) {
    table.processes.at(rank->number()).phase = ProcessPhase::kGone;
  }
  actions.end_host(host.run.number());
}

void ElasticCore::end_process(int process) {
  if (std::exchange(table.processes.at(process).phase, ProcessPhase::kGone) == ProcessPhase::kGone)
    return;
  end_alone(process);
}

void ElasticCore::end_alone(int process) {
  JobHost& host = table.host_of(process);
  if (host.use == HostUse::kGone) return;
  if (table.has_live_process(host))
    actions.end_process(process);
  else
    drop_host(host);
}

void ElasticCore::drop_surplus() {
  if (!table.current) return;
  for (auto last = table.processes.rbegin(); last != table.processes.rend(); ++last) {
    const auto& [number, process] = *last;
    if (process.phase == ProcessPhase::kGone || table.is_member(number)) continue;
    const std::string& name = table.hosts.at(process.host).name();
    const bool is_above_slots =
        std::any_of(pool.offered().begin(), pool.offered().end(), [&](const Host& host) {
          return host.name == name && table.live_processes(name) > host.slots;
        });
    if (is_above_slots || (limits.most && table.staying_processes() > *limits.most))
      end_process(number);
  }
}

void ElasticCore::end_slow(Time now) {
  const auto found = deadlines.slow(now);
  for (const auto& [process, sentence] : found.late) {
    const std::string& host = table.host_of(process).name();
    actions.report(fmt::format("{}; {}", sentence, start_another_later(host, now)));
    end_process(process);
  }
  report_all(found.reminders);
  wake_at(found.next);
}

std::string ElasticCore::follow_up(const ProcessFailure& failed, bool is_host_sound, Time now) {
  const bool was_member = table.is_member(failed.process);
  // A process that was no rank yet takes nothing from the others.
  if (was_member || !table.current) {
    failure.note(failed.exit_code, failed.sentence, failed.process);
  }
  const std::string name = table.host_of(failed.process).name();
  const bool is_alone = std::all_of(pool.offered().begin(), pool.offered().end(),
                                    [&](const Host& other) { return other.name == name; });
  std::string after;
  if (limits.restarts_ranks || is_host_sound || (is_alone && !limits.hosts_join())) {
    const auto wait = pool.retry_later(name, seconds(1), seconds(60), now);
    after = fmt::format("it is started again in {} s", wait.count());
  } else if (!was_member && table.members_of(name) > 0) {
    after = start_another_later(name, now);
  } else {
    after = exclude(name, now);
    for (auto& [number, host] : table.hosts) {
      if (host.name() == name) drop_host(host);
    }
  }
  return after.empty() ? failed.sentence : fmt::format("{}; {}", failed.sentence, after);
}

std::string ElasticCore::exclude(const std::string& name, Time now) {
  const auto exclusion = pool.exclude(name, now);
  if (limits.hosts_join()) {
    return fmt::format("host {} is used again when an agent joins there", name);
  }
  return exclusion ? about_exclusion(name, *exclusion) : "";
}

std::string ElasticCore::after_loss(const JobHost& host, Time now) {
  const Time until = host.run.runs_until();
  if (until == Time()) return exclude(host.name(), now);
  pool.retry_at(host.name(), until);
  if (limits.hosts_join()) {
    return fmt::format("host {} is used again when an agent joins there", host.name());
  }
  const auto left = std::chrono::ceil<seconds>(until - now).count();
  if (left > 0) {
    return fmt::format(
        "host {} is used again when its agent confirms the end of its ranks, or in {} s",
        host.name(), left);
  }
  const auto wait = pool.retry_later(host.name(), seconds(5), seconds(300), now);
  return fmt::format("host {} is tried again in {} s", host.name(), wait.count());
}

std::string ElasticCore::start_another_later(const std::string& name, Time now) {
  const auto wait = pool.retry_later(name, seconds(5), seconds(300), now);
  if (limits.hosts_join()) return "the job goes on without it";
  return fmt::format("the job goes on without it, and starts another process there in {} s",
                     wait.count());
}

bool ElasticCore::has_gathered(bool may_come, Time now) {
  ready_since = ready_since.value_or(now);
  const Time when = may_come ? *ready_since + kGathering : *ready_since;
  if (now < when) wake_at(when);
  return now >= when;
}

bool ElasticCore::may_grow() const {
  return joining.generation() != nullptr || ready_since || capacity.may_grow();
}

int32_t ElasticCore::departures() const {
  const auto leaves = [](const auto& one) { return one.second.use == HostUse::kLeaving; };
  const auto has_fewer_slots = [this](const Host& host) {
    return table.members_of(host.name) > host.slots;
  };
  const auto is_removed = [this](int process) {
    return table.is_live(process) && table.processes.at(process).is_removed;
  };
  const std::vector<int> members = table.members();
  const bool any = std::any_of(table.hosts.begin(), table.hosts.end(), leaves) ||
                   std::any_of(pool.offered().begin(), pool.offered().end(), has_fewer_slots) ||
                   (limits.most && table.live_members() > *limits.most) ||
                   std::any_of(members.begin(), members.end(), is_removed);
  return any ? rendezvous::kHostsRemoved : rendezvous::kHostsUnchanged;
}

void ElasticCore::notify_ranks(int32_t updates, Time now) {
  if (notice.set(updates, now)) {
    actions.notify_updates(generation(), static_cast<rendezvous::HostUpdates>(updates));
  }
  if (deadlines.is_asked()) return;
  if (const auto reminder = notice.reminder(now)) actions.report(*reminder);
  wake_at(notice.next());
}

void ElasticCore::count_reset(const std::string& why, Time now) {
  history.resets.count(generation() + 1, why, now);
}

void ElasticCore::over(int exit_code, const std::string& sentence, int process) {
  if (is_over()) return;
  to(JobStage::kOver);
  actions.end_job(exit_code, sentence, process);
}

void ElasticCore::end_by_reset_limit() {
  const std::string sentence = history.resets.sentence();
  over(kExitLauncher,
       failure.is_noted() ? fmt::format("{}; now {}", sentence, failure.sentence()) : sentence);
}

void ElasticCore::report_all(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) actions.report(sentence);
}

}  // namespace hvd::launcher
