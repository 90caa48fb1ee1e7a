#include "launcher/elastic/elastic_core.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

constexpr seconds kGathering{1};

}  // namespace

bool ChangeNotice::set(int32_t updates, Clock::time_point now) {
  if (updates == updates_) return false;
  if (updates_ == rendezvous::kHostsUnchanged) {
    since_ = now;
    reminder_.start(now + Reminder::kInterval);
  }
  updates_ = updates;
  return true;
}

std::optional<std::string> ChangeNotice::reminder(Clock::time_point now) {
  if (!reminder_.is_due(now)) return std::nullopt;
  return cat("the next generation has waited ",
             std::chrono::round<std::chrono::seconds>(now - since_).count(),
             " s for a commit of the ranks (",
             updates_ == rendezvous::kHostsAdded     ? "new ranks are ready"
             : updates_ == rendezvous::kHostsRemoved ? "ranks are to leave"
                                                     : "new ranks are ready, others are to leave",
             ")");
}

std::string ChangeNotice::cause() const {
  const bool is_growth = (updates_ & rendezvous::kHostsAdded) != 0;
  const bool is_loss = (updates_ & rendezvous::kHostsRemoved) != 0;
  return is_growth && is_loss ? "new ranks were ready, and others left"
         : is_growth          ? "new ranks were ready"
         : is_loss            ? "ranks left"
                              : "the ranks asked for it after an error";
}

ElasticCore::ElasticCore(const GenerationLimits& given, GenerationActions& orders,
                         JobHistory& of_job, HostTable& of_launch)
    : limits(given), actions(orders), history(of_job), pool(of_job.pool), hosts(of_launch) {
  if (history.most) limits.most = history.most;
  set_current({});
}

void ElasticCore::set_current(std::optional<Generation> generation) {
  current = std::move(generation);
  std::vector<int> members;
  if (current) {
    for (const Member& member : current->members) members.push_back(member.incarnation);
  }
  hosts.set_members(current ? current->number : history.generation - 1, members);
}

void ElasticCore::to(JobStage following) {
  HVD_CHECK(may_follow(stage, following));
  stage = following;
}

bool ElasticCore::restarts_program() const {
  return limits.restarts_programs && current &&
         (stage == JobStage::kAssumed || stage == JobStage::kAsking);
}

void ElasticCore::note_start(const HostRun& host, Time now) {
  for (RankRun* rank : host.ranks()) rank->place().since = now;
}

void ElasticCore::start_hosts(Time now) {
  if (training_end.has_come()) return;
  for (const Host& host : pool.offered()) {
    if (!pool.may_start(host.name, now)) continue;
    const int live = live_processes(hosts, host.name);
    if (limits.hosts_join() && live > 0) continue;
    int wanted = host.slots - live;
    if (limits.most) wanted = std::min(wanted, *limits.most - staying_processes(hosts));
    if (wanted <= 0) continue;
    note_start(actions.start_host(host, wanted), now);
  }
  if (const auto time = pool.next_start(now)) wake_at(*time);
}

void ElasticCore::mark_leaving() {
  for (HostRun& host : hosts.hosts()) {
    if (host.is_gone()) continue;
    const bool is_offered = std::ranges::any_of(
        pool.offered(), [&host](const Host& one) { return one.name == host.name(); });
    host.to(is_offered ? HostUse::kUsed : HostUse::kLeaving);
    if (host.is_leaving() && !host.has_member()) drop_host(host);
  }
}

void ElasticCore::end_left_hosts() {
  for (HostRun& host : hosts.hosts()) {
    if (host.is_leaving() && members_of(hosts, host.name()) == 0) drop_host(host);
  }
}

void ElasticCore::drop_host(HostRun& host) {
  if (host.is_gone()) return;
  host.to(HostUse::kGone);
  for (RankRun* rank : host.ranks()) rank->go();
  actions.end_host(host);
}

void ElasticCore::end_process(RankRun& process) {
  if (process.go()) end_alone(process);
}

void ElasticCore::end_alone(RankRun& process) {
  HostRun& host = process.host();
  if (host.is_gone()) return;
  if (host.has_process())
    actions.end_process(process);
  else
    drop_host(host);
}

void ElasticCore::drop_surplus() {
  if (!current) return;
  for (auto process = hosts.ranks().rbegin(); process != hosts.ranks().rend(); ++process) {
    if (process->is_gone() || process->is_member()) continue;
    const std::string& name = process->host().name();
    const bool is_above_slots = std::ranges::any_of(pool.offered(), [&](const Host& host) {
      return host.name == name && live_processes(hosts, name) > host.slots;
    });
    if (is_above_slots || (limits.most && staying_processes(hosts) > *limits.most))
      end_process(*process);
  }
}

void ElasticCore::end_slow(Time now) {
  const auto found = deadlines.slow(now);
  for (const auto& [number, sentence] : found.late) {
    RankRun& process = hosts.rank(number);
    const std::string& host = process.host().name();
    actions.report(fmt::format("{}; {}", sentence, start_another_later(host, now)));
    end_process(process);
  }
  report_all(found.reminders);
  wake_at(found.next);
}

std::string ElasticCore::follow_up(const ProcessFailure& failed, bool is_host_sound, Time now) {
  const bool was_member = hosts.rank(failed.process).is_member();
  // The failure of a process that was not a rank yet does not affect the other ranks.
  if (was_member || !current) {
    failure.note(failed.exit_code, failed.sentence, failed.process);
  }
  const std::string& name = hosts.rank(failed.process).host().name();
  const bool is_alone = std::all_of(pool.offered().begin(), pool.offered().end(),
                                    [&](const Host& other) { return other.name == name; });
  std::string after;
  if (limits.restarts_ranks || is_host_sound || (is_alone && !limits.hosts_join())) {
    const auto wait = pool.retry_later(name, seconds(1), seconds(60), now);
    after = fmt::format("it is started again in {} s", wait.count());
  } else if (!was_member && members_of(hosts, name) > 0) {
    after = start_another_later(name, now);
  } else {
    after = exclude(name, now);
    for (HostRun& host : hosts.hosts()) {
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

std::string ElasticCore::after_loss(const HostRun& host, Time now) {
  const Time until = host.runs_until();
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
  const auto has_fewer_slots = [this](const Host& host) {
    return members_of(hosts, host.name) > host.slots;
  };
  const auto is_removed = [](const RankRun* rank) {
    return !rank->is_gone() && rank->place().is_removed;
  };
  const bool any = std::ranges::any_of(hosts.hosts(), &HostRun::is_leaving) ||
                   std::ranges::any_of(pool.offered(), has_fewer_slots) ||
                   (limits.most && live_members(hosts) > *limits.most) ||
                   std::ranges::any_of(hosts.members(), is_removed);
  return any ? rendezvous::kHostsRemoved : rendezvous::kHostsUnchanged;
}

void ElasticCore::notify_ranks(int32_t updates, Time now) {
  if (notice.set(updates, now)) {
    actions.notify_updates(hosts.generation(), static_cast<rendezvous::HostUpdates>(updates));
  }
  if (deadlines.is_asked()) return;
  if (const auto reminder = notice.reminder(now)) actions.report(*reminder);
  wake_at(notice.next());
}

void ElasticCore::count_reset(const std::string& why, Time now) {
  history.resets.count(hosts.generation() + 1, why, now);
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
