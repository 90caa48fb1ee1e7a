#include "launcher/attempts.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <set>

#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/check/doctor.h"
#include "launcher/command.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/job/job.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/reach/first_hosts.h"
#include "net/asio.h"

namespace hvd::launcher {
namespace {

// Returns whether the other hosts of an elastic job have enough slots if some hosts could not be prepared.
bool others_suffice(const LaunchSettings& settings, const HostPool& pool, const SlotPlan& plan,
                    const std::vector<int>& failed) {
  int slots = 0;
  for (const Host& host : pool.offered()) {
    const bool has_failed = std::any_of(failed.begin(), failed.end(), [&](int one) {
      return plan.hosts[static_cast<size_t>(one)].name == host.name;
    });
    if (!has_failed && pool.may_start(host.name, Clock::now())) slots += host.slots;
  }
  return slots >= rank_limits(settings).min;
}

// The next launch of the job, or the end of the command.
struct Next {
  std::optional<SlotPlan> plan{};
  int exit_code = 0;  // used if there is no plan
};

class Launches {
 public:
  virtual ~Launches() = default;
  virtual Next first() = 0;
  virtual Next after(const JobEnd& end) = 0;
  virtual uint32_t generation() const = 0;
  // Returns the job's history since the first launch, for run_job().
  virtual JobHistory* history() = 0;
  // Returns whether a spare can replace this host of the plan.
  virtual bool has_spare(int host) const = 0;
};

// Sleeps until `time`. Returns early if a signal ends the job: the signal's number; otherwise 0.
int sleep_until(Clock::time_point time) {
  net::asio::io_context loop(1);
  net::asio::signal_set signals(loop, SIGINT, SIGTERM);
  if (!is_ignored(SIGHUP)) signals.add(SIGHUP);
  net::asio::steady_timer timer(loop, time);
  int signal = 0;
  signals.async_wait([&](const net::error_code& error, int number) {
    if (!error) signal = number;
    timer.cancel();
  });
  timer.async_wait([&](const net::error_code&) { signals.cancel(); });
  loop.run();
  return signal;
}

// A job of constant size. --max-restarts restarts it, on spare hosts or on the same hosts.
class ConstantLaunches : public Launches {
 public:
  explicit ConstantLaunches(const Options& options)
      : options_(options),
        most_(options.settings.job.max_restarts.value),
        start_limit_(options.settings.job.start_timeout.value) {}

  Next first() override {
    auto plan = make_plan(options_, &spares_);
    if (!plan.ok()) return {.exit_code = refuse(plan.status())};
    plan_ = *std::move(plan);
    if (!options_.settings.job.dry_run) {
      const Status passed = pass_preflight(options_, plan_, spares_);
      if (!passed.ok()) return {.exit_code = refuse(passed)};
    }
    has_spares_ = !spares_.empty();
    launched_ = Clock::now();
    return {.plan = plan_};
  }

  Next after(const JobEnd& end) override {
    note_exit_code(end);
    if (end.exit_code == 0) return {.exit_code = 0};
    if (end.slow_host >= 0) return without_slow(end.slow_host);
    if (!end.may_be_tried_again) return {.exit_code = exit_code_};
    if (end.is_by_scheduler && !has_spares_) return {.exit_code = exit_code_};
    const bool may_use_again = this->may_use_again(end);
    if (end.has_started ? restarts_ == most_ : !has_spares_ && !may_use_again) return give_up(end);
    const Replacement replaced = replace_failed(end);
    if (has_spares_ || !may_use_again) print_all(replaced.unreplaced);
    if (!replaced.unreplaced.empty() && !may_use_again) return {.exit_code = exit_code_};
    const int signal = wait_for(end, replaced);
    return signal != 0 ? Next{.exit_code = kExitSignal + signal} : again();
  }

  uint32_t generation() const override { return generation_; }
  JobHistory* history() override { return nullptr; }
  bool has_spare(int host) const override {
    const size_t index = static_cast<size_t>(host);
    return !slow_.contains(plan_.hosts[index].name) && can_replace(plan_, host, spares_);
  }

 private:
  // Returns whether lost hosts can be used again. If the launch did not start its ranks, they can until reach_until_.
  bool may_use_again(const JobEnd& end) const {
    return !end.is_by_scheduler && (end.has_started || Clock::now() < reach_until_);
  }
  // Replaces each slow host at most once per job: a spare that is slow stays.
  Next without_slow(int host) {
    const Replacement replaced = replace_hosts(plan_, {host}, spares_);
    for (const std::string& sentence : replaced.sentences) print_message(sentence);
    print_all(replaced.unreplaced);
    if (!replaced.unreplaced.empty()) return {.exit_code = exit_code_};
    slow_.insert(plan_.hosts[static_cast<size_t>(host)].name);
    return again();
  }

  // Keeps the previous exit code if the restart failed before its ranks started: the earlier code says more about the
  // job.
  void note_exit_code(const JobEnd& end) {
    if (generation_ == 0 || end.has_started || end.exit_code > kExitSignal)
      exit_code_ = end.exit_code;
  }

  static void print_all(const std::map<int, std::string>& sentences) {
    for (const auto& [host, sentence] : sentences) print_message(sentence);
  }

  Next give_up(const JobEnd& end) const {
    if (!end.has_started && reach_until_ != Clock::time_point()) {
      print_message(cat("no lost host could be used again within ", start_limit_.count(),
                        " s (--start-timeout)"));
    }
    return {.exit_code = exit_code_};
  }

  Replacement replace_failed(const JobEnd& end) {
    const std::set<int> failed(end.failed_hosts.begin(), end.failed_hosts.end());
    Replacement replaced =
        replace_hosts(plan_, std::vector<int>(failed.begin(), failed.end()), spares_);
    for (const std::string& sentence : replaced.sentences) print_message(sentence);
    return replaced;
  }

  // Announces the time of the next launch, and waits for it. Returns the signal that ends the job, or 0.
  int wait_for(const JobEnd& end, const Replacement& replaced) {
    const auto now = Clock::now();
    auto next = now + take_pause();
    const bool uses_again = !replaced.unreplaced.empty();
    if (uses_again && end.has_started) {
      next = std::max(next, end.ranks_end_by);
      reach_until_ = next + std::chrono::duration_cast<Clock::duration>(start_limit_);
    }
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(next - now).count();
    const std::string wait = seconds > 0 ? cat(" in ", seconds, " s") : "";
    for (const auto& [host, sentence] : replaced.unreplaced) {
      print_message(cat("host ", plan_.hosts[static_cast<size_t>(host)].name,
                        end.has_started ? " is used again" : " is tried again", wait,
                        now < end.ranks_end_by ? ", when its ranks have ended" : ""));
    }
    if (end.has_started)
      print_message(cat("restart ", ++restarts_, " of ", most_, uses_again ? "" : wait));
    return seconds > 0 ? sleep_until(next) : 0;
  }

  Next again() {
    ++generation_;
    launched_ = Clock::now();
    return {.plan = plan_};
  }

  // From the second consecutive short launch on, the pauses between launches grow.
  std::chrono::seconds take_pause() {
    if (Clock::now() - launched_ > start_limit_) short_launches_ = 0;
    const int doublings = std::min(short_launches_++, kMostDoublings + 1) - 1;
    return std::chrono::seconds(doublings < 0 ? 0 : 1 << doublings);
  }

  static constexpr int kMostDoublings = 6;

  const Options& options_;
  const int most_;
  const std::chrono::duration<double> start_limit_;
  Clock::time_point launched_{};
  int short_launches_ = 0;           // consecutive short launches
  Clock::time_point reach_until_{};  // until then, a lost host may be unreachable
  SlotPlan plan_;
  std::vector<Host> spares_;
  std::set<std::string> slow_;  // spares that replaced slow hosts
  bool has_spares_ = false;     // the job had spares at its beginning
  int restarts_ = 0;
  uint32_t generation_ = 0;
  int exit_code_ = 0;
};

// The launches of an elastic job. Another launch follows when the ranks change and the program must restart.
class ElasticLaunches : public Launches {
 public:
  explicit ElasticLaunches(const Options& options) : options_(options) {}

  Next first() override {
    auto found = wait_for_first_hosts(options_);
    if (!found.ok()) return {.exit_code = refuse(found.status())};
    if (found->signal != 0) return {.exit_code = kExitSignal + found->signal};
    hosts_ = std::move(found->hosts);
    auto plan = plan_elastic(options_.settings, hosts_);
    if (!plan.ok()) return {.exit_code = refuse(plan.status())};
    plan_ = *std::move(plan);
    return {.plan = plan_};
  }

  Next after(const JobEnd& end) override {
    // A host that ran ranks earlier but cannot be prepared again has failed.
    const bool lacks_hosts =
        end.exit_code == kExitBadInput && !end.has_started && !end.failed_hosts.empty() &&
        (launched_ > 0 ||
         others_suffice(options_.settings, history_->pool, plan_, end.failed_hosts));
    if (!end.wants_restart && !lacks_hosts) return {.exit_code = end.exit_code};
    if (end.wants_restart) history_->waits_since.reset();
    if (lacks_hosts) put_off(end.failed_hosts);
    const auto next = wait_for_next_hosts(options_, *history_);
    if (!next.ok()) {
      print_message(next.status().message(), Tone::kError);
      return {.exit_code = history_->failure_code != 0 ? history_->failure_code : 1};
    }
    if (next->signal != 0) return {.exit_code = kExitSignal + next->signal};
    auto plan = plan_again(options_.settings, *history_, next->hosts);
    if (!plan.ok()) return {.exit_code = refuse(plan.status())};
    plan_ = *std::move(plan);
    print_message(cat("generation ", history_->generation, ": ", count_of_ranks(plan_.size())));
    return {.plan = plan_};
  }

  uint32_t generation() const override { return launched_; }

  JobHistory* history() override {
    if (!history_) history_.emplace(new_history(options_.settings, hosts_, false));
    launched_ = static_cast<uint32_t>(history_->generation);
    return &*history_;
  }
  bool has_spare(int) const override { return false; }

 private:
  void put_off(const std::vector<int>& failed_hosts) {
    for (const int host : failed_hosts) {
      const std::string& name = plan_.hosts[static_cast<size_t>(host)].name;
      const auto wait = history_->pool.retry_later(name, std::chrono::seconds(5),
                                                   std::chrono::seconds(300), Clock::now());
      if (launched_ > 0) continue;
      print_message(cat("the job begins without host ", name, ", and tries it again in ",
                        wait.count(), " s"));
    }
  }

  const Options& options_;
  std::vector<Host> hosts_;  // the initial hosts
  SlotPlan plan_;
  std::optional<JobHistory> history_;  // kept over all launches
  uint32_t launched_ = 0;              // the first generation of the current launch
};

}  // namespace

int run_attempts(const Options& options, const LaunchEvents& events) {
  std::unique_ptr<Launches> launches;
  if (is_elastic(options.settings))
    launches = std::make_unique<ElasticLaunches>(options);
  else
    launches = std::make_unique<ConstantLaunches>(options);
  Next next = launches->first();
  if (!next.plan) return next.exit_code;
  if (options.settings.job.dry_run) return show_plan(options, *next.plan);
  prepare_process(options);
  const auto folder = take_output_folder(options.settings);
  if (!folder.ok()) return refuse(folder.status());
  ResolvedEnvironment environment;  // the same for all launches
  while (next.plan) {
    JobHistory* const history = launches->history();
    next = launches->after(run_job(options, *next.plan, launches->generation(), environment,
                                   nullptr, events, history,
                                   [&launches](int host) { return launches->has_spare(host); }));
  }
  return next.exit_code;
}

}  // namespace hvd::launcher
