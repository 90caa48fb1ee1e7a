#include "launcher/elastic/elastic_job.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/allocation/launch_method.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/output/report.h"

namespace hvd::launcher {
namespace {

HostSource host_source(const LaunchSettings& settings, bool hosts_join) {
  if (hosts_join) return HostSource::kJoining;
  return settings.elastic.host_discovery_script.has_value() ? HostSource::kScript
                                                            : HostSource::kNamed;
}

GenerationLimits generation_limits(const LaunchSettings& settings, bool hosts_join) {
  const RankLimits ranks = rank_limits(settings);
  return {.least = ranks.min,
          .most = ranks.max,
          .pause_seconds = elastic_timeout(settings),
          .return_seconds = settings.job.start_timeout.value,
          .init_seconds = init_seconds(settings.table()),
          .resets = reset_limit(settings),
          .hosts = host_source(settings, hosts_join),
          .restarts_ranks = settings.elastic.restart_ranks,
          // Agents that joined start their ranks only once. A parent process serves one launch.
          .restarts_programs = !hosts_join && !settings.job.store_fd.has_value(),
          .most_restarts = most_restarts(settings),
          .cause_seconds = silence_limits(settings, false).host_timeout_seconds + 2};
}

}  // namespace

Result<SlotPlan> plan_elastic(const LaunchSettings& settings, const std::vector<Host>& hosts) {
  const RankLimits ranks = rank_limits(settings);
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  // For more ranks than slots, plan_slots returns an error with a table of the hosts.
  return plan_slots(hosts, std::max(ranks.start, std::min(ranks.max.value_or(slots), slots)));
}

Result<SlotPlan> plan_again(const LaunchSettings& settings, const JobHistory& history,
                            std::vector<Host> hosts) {
  const auto place = [&](const Host& host) {
    return std::find(history.hosts.begin(), history.hosts.end(), host.name) - history.hosts.begin();
  };
  std::ranges::stable_sort(hosts, {}, place);
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  const std::optional<int> most = history.most ? history.most : rank_limits(settings).max;
  return plan_slots(hosts, std::min(most.value_or(slots), slots));
}

JobHistory new_history(const LaunchSettings& settings, std::vector<Host> hosts, bool hosts_join) {
  const HostPool::Rules rules{.hosts = host_source(settings, hosts_join),
                              .cooldown = cooldown_range(settings)};
  JobHistory history{HostPool(rules, random_fraction)};
  history.pool.discovered(std::move(hosts));
  return history;
}

ElasticJob::ElasticJob(PolicyLaunch& launch, const LaunchSettings& settings, JoinQueue* join_queue,
                       JobHistory& history)
    : launch_(launch),
      settings_(settings),
      join_queue_(join_queue),
      history_(history),
      generations_(generation_limits(settings, join_queue != nullptr), *this, history,
                   launch.hosts()),
      timer_(launch.executor()) {
  if (!settings.elastic.host_discovery_script.has_value()) return;
  discovery_ = std::make_unique<ScriptDiscovery>(
      launch.executor(),
      DiscoveryScript{.command = settings.elastic.host_discovery_script.value_or(""),
                      .slots_alone = settings.hosts.slots_per_host.value},
      DiscoveryCallbacks{.warn = [this](std::string_view sentence) { launch_.print(sentence); },
                         .show = [this](std::string_view line) { launch_.print(line); }});
}

ElasticJob::~ElasticJob() = default;

void ElasticJob::begin() {
  const auto now = Clock::now();
  launch_.store().on_change(std::string(rendezvous::kPlaceRequests),
                            [this](const std::string& key) { take_request(key); });
  launch_.store().on_change(std::string(rendezvous::kFollowers), [this](const std::string& key) {
    const auto process = parse_int(std::string_view(key).substr(rendezvous::kFollowers.size()));
    if (is_stopped_ || !process) return;
    generations_.takes_part(Clock::now());
    arm();
  });
  launch_.store().on_change(std::string(rendezvous::kElasticRuns), [this](const std::string& key) {
    const auto process = parse_int(std::string_view(key).substr(rendezvous::kElasticRuns.size()));
    const auto value = launch_.store().value(key);
    if (is_stopped_ || !process || !value) return;
    generations_.runs(*process, as_text(*value) == rendezvous::kInsideRun ? ElasticCall::kInside
                                : as_text(*value) == rendezvous::kRaisedInRun
                                    ? ElasticCall::kRaised
                                    : ElasticCall::kReturned);
  });
  generations_.discovered(join_queue_ != nullptr ? join_queue_->hosts() : history_.pool.named(),
                          now);
  arm();
  if (join_queue_ != nullptr) {
    join_queue_->on_hosts([this] {
      if (is_stopped_) return;
      generations_.discovered(join_queue_->hosts(), Clock::now());
      arm();
    });
  }
  if (discovery_) {
    discovery_->watch([this](const std::vector<Host>& hosts) {
      if (is_stopped_) return;
      generations_.discovered(hosts, Clock::now());
      arm();
    });
  }
}

void ElasticJob::stop() {
  if (std::exchange(is_stopped_, true)) return;
  timer_.cancel();
  if (join_queue_ != nullptr) join_queue_->close();
}

void ElasticJob::leave_queue(const std::string& name) {
  join_queue_->remove(name);
  if (is_stopped_) return;
  std::vector<Host> others = join_queue_->hosts();
  std::erase_if(others, [&](const Host& host) { return host.name == name; });
  generations_.discovered(std::move(others), Clock::now());
  generations_.discovered(join_queue_->hosts(), Clock::now());
  arm();
}

net::Task<void> ElasticJob::end() {
  stop();
  if (discovery_) co_await discovery_->stop();
}

bool ElasticJob::survives(int rank, int host, int exit_code, const std::string& sentence) {
  if (is_stopped_) return true;
  const auto now = Clock::now();
  bool goes_on = true;
  if (rank >= 0) {
    // After a signal, no exception has ended the rank: a traceback in its output has another cause.
    const bool may_raise = exit_code > 0 && exit_code < kExitSignal;
    goes_on = generations_.ended(rank, exit_code, sentence, now,
                                 may_raise ? launch_.last_exception(rank) : "");
  } else if (HostRun& run = launch_.hosts().host(host); run.had_ranks()) {
    goes_on = generations_.host_lost(run, sentence, now);
  } else {
    generations_.start_failed(run, sentence, now);
  }
  host_gone();
  return goes_on;
}

// When a network switch fails, several hosts become silent, and answer again one after another. If the job cannot
// continue without the silent hosts, no host is abandoned for another --host-timeout.
bool ElasticJob::gives_up(HostRun& host) {
  if (is_stopped_) return false;
  std::set<std::string> silent = {host.name()};
  for (const HostRun& other : launch_.hosts().hosts()) {
    const bool has_link = !other.is_over() && other.link() != nullptr;
    if (has_link && other.link()->pings().silence_seconds() > 0) silent.insert(other.name());
  }
  const auto now = Clock::now();
  if (!generations_.can_spare(silent)) {
    const double wait = silence_limits(settings_, false).host_timeout_seconds;
    gives_up_from_ = now + duration_of(wait);
    return false;
  }
  return now >= gives_up_from_;
}

void ElasticJob::ranks_ended(const HostRun& host) {
  if (is_stopped_) return;
  generations_.ranks_ended(host, Clock::now());
  arm();
}

// The next generation may wait for the ranks of the host that has ended.
void ElasticJob::host_gone() {
  if (is_stopped_) return;
  generations_.on_time(Clock::now());
  arm();
}

Result<std::string> ElasticJob::change(const std::vector<std::string>& words) {
  if (is_stopped_) return failed_precondition("the job ends");
  const auto now = Clock::now();
  const bool is_resize = words.size() == 2 && words[0] == "resize";
  const bool is_removal = words.size() == 2 && words[0] == "remove";
  const auto number = parse_int(is_resize || is_removal ? words[1] : "");
  Result<std::string> sentence = invalid_argument(
      "this is not an order to change the ranks; it may come from another release");
  if (is_resize && number && *number >= 1 && *number <= kMaxSlots) {
    sentence = generations_.resize(static_cast<int>(*number), now);
  } else if (is_removal && number) {
    sentence = generations_.remove_rank(*number, now);
  } else if (is_removal) {
    sentence = generations_.remove_host(words[1], now);
  }
  arm();
  if (sentence.ok()) launch_.print(cat("horovodrun ", join(words, " "), ": ", *sentence));
  return sentence;
}

void ElasticJob::host_leaves(HostRun& host, const std::string& why) {
  if (is_stopped_ || host.state() >= HostState::kEnding) return;
  generations_.host_leaves(host, why, settings_.elastic.leave_grace, Clock::now());
  arm();
}

void ElasticJob::take_request(const std::string& key) {
  const auto process = parse_int(std::string_view(key).substr(rendezvous::kPlaceRequests.size()));
  const auto value = launch_.store().value(key);
  if (is_stopped_ || !process || !launch_.hosts().has_rank(*process) || !value) return;
  const auto request = rendezvous::decode_place_request(*value);
  if (!request.ok()) {
    log::warning(cat("a process asks for its rank in a way that this launcher does not know: ",
                     request.status().message()));
    return;
  }
  launch_.store().remove_all(
      rendezvous::place_answer_key(static_cast<int>(*process), request->number - 1));
  generations_.requested(*process, *request, Clock::now());
  arm();
}

void ElasticJob::arm() {
  const auto next = generations_.next_time();
  if (is_stopped_ || next == Generations::Time::max()) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(next);
  timer_.async_wait([this](const net::error_code& error) {
    if (error || is_stopped_) return;
    generations_.on_time(Clock::now());
    arm();
  });
}

HostRun& ElasticJob::start_host(const Host& host, int slots) {
  HostTable& hosts = launch_.hosts();
  Host used = host;
  used.slots = slots;
  HostRun& run = hosts.add(std::move(used), places_on(hosts, host.name, slots));
  launch_.reach(run);
  return run;
}

void ElasticJob::held(HostRun& host) {
  if (is_stopped_) return;
  generations_.prepared(host, Clock::now());
  arm();
}

// Posted, because the caller is in the middle of a decision.
void ElasticJob::start_processes(HostRun& host) {
  net::asio::post(launch_.executor(), [this, &host] {
    if (!is_stopped_ && host.state() == HostState::kHeld) launch_.start(host);
  });
}

void ElasticJob::end_host(HostRun& host) {
  if (join_queue_ != nullptr) {
    // Posted, because the caller is in the middle of a decision.
    net::asio::post(launch_.executor(), [this, name = host.name()] { leave_queue(name); });
  }
  launch_.end(host);
}

void ElasticJob::end_process(RankRun& process) { launch_.end(process); }

void ElasticJob::set(const std::string& key, ByteView value) {
  const Status status = launch_.store().set(key, value);
  if (!status.ok()) log::error(cat("the store of the job: ", status.message()));
}

void ElasticJob::begin_generation(const rendezvous::Generation& generation) {
  // No rank uses the previous generation's keys now.
  if (const int32_t before = generation.number - 1; before >= 0) {
    launch_.store().remove_all(cat("g", before, "/"));
  }
}

void ElasticJob::answer(const RankRun& process, const rendezvous::PlaceAnswer& answer) {
  set(rendezvous::place_answer_key(process.number(), process.place().request), encode(answer));
}

void ElasticJob::notify_updates(int32_t generation, rendezvous::HostUpdates updates) {
  set(std::string(rendezvous::kUpdateNews),
      encode(rendezvous::GenerationNews{generation, cat(static_cast<int32_t>(updates))}));
}

void ElasticJob::notify_loss(int32_t generation, const std::string& sentence) {
  set(std::string(rendezvous::kLostNews), encode(rendezvous::GenerationNews{generation, sentence}));
}

void ElasticJob::notify_leave(const HostRun& host, double seconds) {
  rendezvous::LeaveNews news;
  news.seconds = static_cast<int32_t>(seconds);
  for (const RankRun* rank : host.ranks()) news.processes.push_back(rank->number());
  set(cat(rendezvous::kLeaveNews, host.number()), encode(news));
}

void ElasticJob::report(const std::string& sentence) { launch_.print(sentence); }

void ElasticJob::end_job(int exit_code, const std::string& sentence, int process) {
  launch_.end_job(exit_code, sentence, process);
}

void ElasticJob::restart() {
  wants_restart_ = true;
  // Exit code 0 means no failure, so a later failure or signal can set the exit code.
  launch_.end_job(0, "", -1);
}

}  // namespace hvd::launcher
