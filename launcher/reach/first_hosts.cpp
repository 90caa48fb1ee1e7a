#include "launcher/reach/first_hosts.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "base/cores.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/allocation/script_discovery.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/output/report.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"
#include "launcher/reach/host_jobs.h"
#include "launcher/reach/host_startup.h"
#include "net/asio.h"

namespace hvd::launcher {
namespace {

// A wait is reported after kUntilReported, and then at intervals of kReportedAgain.
constexpr std::chrono::seconds kUntilReported{3};
constexpr std::chrono::seconds kReportedAgain{60};
constexpr std::chrono::seconds kSoon{4};

int slots_of(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

class Wait {
 public:
  // `history`: the history of a job that begins again, or null for a new job.
  Wait(const LaunchSettings& settings, JobHistory* history)
      : settings_(settings),
        history_(history),
        wanted_(history != nullptr ? rank_limits(settings).min : rank_limits(settings).start),
        changed_(loop_),
        signals_(loop_, SIGINT, SIGTERM) {
    if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
    if (!settings.elastic.host_discovery_script.has_value()) return;
    discovery_ = std::make_unique<ScriptDiscovery>(
        loop_.get_executor(),
        DiscoveryScript{.command = settings.elastic.host_discovery_script.value_or(""),
                        .slots_alone = settings.hosts.slots_per_host.value},
        DiscoveryCallbacks{
            .warn = [](std::string_view sentence) { print_message(std::string(sentence)); },
            .show = [](std::string_view line) { print_message(std::string(line)); }});
  }

  Result<FirstHosts> run() {
    signals_.async_wait([this](const net::error_code& error, int number) {
      if (error) return;
      signal_ = number;
      changed_.cancel();
    });
    Status status;
    net::asio::co_spawn(loop_, wait(), [&](std::exception_ptr error, Status waited) {
      status = error ? net::status_of(error, "waiting for hosts failed") : waited;
      loop_.stop();
    });
    loop_.run();
    if (!status.ok()) return status;
    return FirstHosts{usable(Clock::now()), signal_};
  }

 private:
  void take(std::vector<Host> hosts) {
    if (history_ != nullptr)
      history_->pool.discovered(std::move(hosts));
    else
      hosts_ = std::move(hosts);
  }

  std::vector<Host> usable(Clock::time_point now) const {
    if (history_ == nullptr) return hosts_;
    std::vector<Host> hosts = history_->pool.offered();
    std::erase_if(hosts,
                  [&](const Host& host) { return !history_->pool.may_start(host.name, now); });
    return hosts;
  }

  std::optional<Clock::time_point> next_start(Clock::time_point now) const {
    return history_ != nullptr ? history_->pool.next_start(now) : std::nullopt;
  }

  std::string progress(int slots) const {
    if (history_ == nullptr) {
      return cat("waits for ", wanted_, " slots; the discovery script names ", slots, " so far");
    }
    return cat("the job pauses: its hosts have slots for ", slots, " of at least ", wanted_,
               " ranks, and it waits for more hosts");
  }

  Status too_late(int slots, double seconds) const {
    if (history_ == nullptr) {
      return deadline_exceeded(cat("the discovery script named ", slots, " of ", wanted_,
                                   " slots within ", seconds,
                                   " s (--elastic-timeout); nothing was started"));
    }
    return deadline_exceeded(cat("the hosts of the job have slots for ", slots, " of at least ",
                                 wanted_, " ranks, and no other hosts came within ", seconds,
                                 " s (--elastic-timeout)",
                                 history_->failure.empty() ? "" : cat("; ", history_->failure)));
  }

  net::Task<Status> wait() {
    if (discovery_) {
      auto first = co_await discovery_->first();
      // If the script fails for a job that begins again, the hosts of its last answer remain.
      if (!first.ok() && signal_ == 0 && history_ == nullptr) co_return first.status();
      if (first.ok()) take(*std::move(first));
      discovery_->watch([this](const std::vector<Host>& hosts) {
        take(hosts);
        changed_.cancel();
      });
    }
    const Status status = co_await wait_for_slots();
    if (discovery_) co_await discovery_->stop();
    co_return status;
  }

  net::Task<Status> wait_for_slots() {
    const auto start = Clock::now();
    // Launches that follow each other without ranks share one time limit.
    if (history_ != nullptr && !history_->waits_since) history_->waits_since = start;
    const auto since = history_ != nullptr ? *history_->waits_since : start;
    const double seconds = elastic_timeout(settings_);
    const auto limit = since + duration_of(seconds);
    auto next_words = start + kUntilReported;
    while (signal_ == 0) {
      const auto now = Clock::now();
      const auto next = next_start(now);
      const int slots = slots_of(usable(now));
      const bool has_enough = slots >= wanted_;
      // Wait for a host that can start again soon, because its later start would be another change of the ranks.
      const bool is_soon = next && *next <= start + kSoon;
      if (has_enough && !is_soon && (now < limit || since == start)) break;
      if (now >= limit) co_return too_late(slots, seconds);
      if (!has_enough && now >= next_words) {
        print_message(progress(slots));
        next_words = now + kReportedAgain;
      }
      changed_.expires_at(std::min({limit, next.value_or(limit), has_enough ? limit : next_words}));
      co_await changed_.async_wait(net::use_tuple);
    }
    co_return Status();
  }

  const LaunchSettings& settings_;
  JobHistory* const history_;
  const int wanted_;
  net::asio::io_context loop_{1};
  std::unique_ptr<ScriptDiscovery> discovery_;  // null without a script
  net::asio::steady_timer changed_;
  net::asio::signal_set signals_;
  std::vector<Host> hosts_;  // the hosts with which the job begins
  int signal_ = 0;
};

// Returns the options for reaching the hosts, without files, package, directory or program of the user.
Result<Options> counting_job(const Options& options) {
  Options job;
  job.command = {"sh"};
  job.is_in_slurm_step = options.is_in_slurm_step;
  Settings settings;
  for (const char* key : {"ssh_port", "ssh_identity_file", "ssh_command", "launch_agent",
                          "agent_dir", "start_timeout", "no_env"}) {
    if (!options.settings.table().is_set(key)) continue;
    HVD_RETURN_IF_ERROR(settings.set(key, options.settings.table().text(key)));
  }
  job.settings = LaunchSettings(std::move(settings)).with("wdir", "/").with("ship", "0");
  return job;
}

int count_of(const AgentLink& link, std::string_view device) {
  const auto gpus = static_cast<int>(parse_int(link.version_of(kGpus)).value_or(0));
  const double cores = parse_double(link.version_of(kCores)).value_or(1);
  return ranks_for(device, gpus, cores);
}

Result<std::vector<int>> ask_agents(const Options& options, std::vector<Host> hosts) {
  for (Host& host : hosts) host.slots = 1;
  HVD_ASSIGN_OR_RETURN(const Options job, counting_job(options));
  HVD_ASSIGN_OR_RETURN(const SlotPlan plan, plan_slots(hosts, std::nullopt));
  net::asio::io_context loop(1);
  HostTable table(plan);
  const JobIdentity identity = random_job();
  HostJobs host_jobs(job, plan, table, 0, identity);
  HVD_RETURN_IF_ERROR(host_jobs.read());
  for (HostRun& host : table.hosts()) host.set_events(std::make_unique<AgentEvents>());
  ResolvedEnvironment environment;  // stays empty, because no host gets --stage-env here
  HostStartup startup(loop, job, table, host_jobs, nullptr, environment);
  std::vector<Status> errors;
  net::asio::co_spawn(loop, startup.reach(),
                      [&](std::exception_ptr thrown, std::vector<Status> found) {
                        errors = std::move(found);
                        if (thrown) errors.push_back(net::status_of(thrown, "cancelled"));
                        loop.stop();
                      });
  loop.run();
  std::vector<int> counts;
  for (HostRun& host : table.hosts()) {
    if (errors.empty()) counts.push_back(count_of(*host.link(), options.settings.hosts.slots_by));
    host.release();  // must precede the end of `startup`, which owns the spawners that the link uses
  }
  if (!errors.empty()) return errors.front();
  return counts;
}

}  // namespace

Result<FirstHosts> wait_for_first_hosts(const Options& options) {
  if (options.settings.elastic.host_discovery_script.has_value())
    return Wait(options.settings, nullptr).run();
  HVD_ASSIGN_OR_RETURN(auto hosts, choose_hosts_with_slots(options));
  return FirstHosts{.hosts = std::move(hosts), .signal = 0};
}

Result<FirstHosts> wait_for_next_hosts(const Options& options, JobHistory& history) {
  return Wait(options.settings, &history).run();
}

Result<std::vector<Host>> choose_hosts_with_slots(const Options& options) {
  HVD_ASSIGN_OR_RETURN(std::vector<Host> hosts, choose_hosts(options.settings));
  std::vector<Host> unknown;
  for (const Host& host : hosts) {
    if (host.slots == 0) unknown.push_back(host);
  }
  if (unknown.empty()) return hosts;
  HVD_ASSIGN_OR_RETURN(const std::vector<int> counts, ask_agents(options, unknown));
  auto count = counts.begin();
  for (Host& host : hosts) {
    if (host.slots != 0) continue;
    host.slots = *count++;
    explain(cat("host ", host.name, " has slots for ", host.slots, " ranks, as its agent counts"));
  }
  return hosts;
}

}  // namespace hvd::launcher
