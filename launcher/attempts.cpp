#include "launcher/attempts.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "launcher/command.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/job/elastic_job.h"
#include "launcher/job/first_hosts.h"
#include "launcher/job/job.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/spares.h"

namespace hvd::launcher {
namespace {

// Whether the other hosts that the script names have slots enough, where some could not be prepared.
bool others_suffice(const Settings& settings, const HostPool& pool, const SlotPlan& plan,
                    const std::vector<int>& failed) {
  if (!settings.is_set("host_discovery_script")) return false;
  int slots = 0;
  for (const Host& host : pool.offered()) {
    const bool has_failed = std::any_of(failed.begin(), failed.end(), [&](int one) {
      return plan.hosts[static_cast<size_t>(one)].name == host.name;
    });
    if (!has_failed && pool.may_start(host.name, Clock::now())) slots += host.slots;
  }
  return slots >= rank_limits(settings).min;
}

}  // namespace

int run_elastic(const Options& options, const std::function<void()>& on_running) {
  const auto found = wait_for_first_hosts(options);
  if (!found.ok()) return refuse(found.status());
  if (found->signal != 0) return kExitSignal + found->signal;
  const auto plan = plan_elastic(options.settings, found->hosts);
  if (!plan.ok()) return refuse(plan.status());
  if (options.settings.flag("dry_run")) return show_plan(options, *plan);
  prepare_process(options);
  const auto folder = take_output_folder(options.settings);
  if (!folder.ok()) return refuse(folder.status());
  JobHistory history = new_history(options.settings, found->hosts, false);
  for (SlotPlan now = *plan;;) {
    const auto generation = static_cast<uint32_t>(history.generation);
    const JobEnd end = run_job(options, now, generation, nullptr, on_running, &history);
    // A host that was there and cannot be prepared again is one that has failed.
    const bool lacks_hosts =
        end.exit_code == kExitBadInput && !end.has_started && !end.failed_hosts.empty() &&
        (generation > 0 || others_suffice(options.settings, history.pool, now, end.failed_hosts));
    if (!end.wants_restart && !lacks_hosts) return end.exit_code;
    if (end.wants_restart) history.waits_since.reset();
    if (lacks_hosts) {
      for (const int host : end.failed_hosts) {
        const std::string& name = now.hosts[static_cast<size_t>(host)].name;
        const auto wait = history.pool.retry_later(name, std::chrono::seconds(5),
                                                   std::chrono::seconds(300), Clock::now());
        if (generation > 0) continue;
        say(cat("the job begins without host ", name, ", and tries it again in ", wait.count(),
                " s"));
      }
    }
    const auto next = wait_for_next_hosts(options, history);
    if (!next.ok()) {
      say(next.status().message());
      return history.failure_code != 0 ? history.failure_code : 1;
    }
    if (next->signal != 0) return kExitSignal + next->signal;
    const auto again = plan_again(options.settings, history, next->hosts);
    if (!again.ok()) return refuse(again.status());
    now = *again;
    say(cat("generation ", history.generation, ": ", count_of_ranks(now.size())));
  }
}

int run_attempts(const Options& options, const std::function<void()>& on_running) {
  if (is_elastic(options.settings)) return run_elastic(options, on_running);
  std::vector<Host> spares;
  auto plan = make_plan(options, &spares);
  if (!plan.ok()) return refuse(plan.status());
  if (options.settings.flag("dry_run")) return show_plan(options, *plan);
  prepare_process(options);
  const auto folder = take_output_folder(options.settings);
  if (!folder.ok()) return refuse(folder.status());
  const int64_t most = options.settings.integer("max_restarts");
  const bool has_spares = !spares.empty();
  int64_t restarts = 0;
  int exit_code = 0;
  for (uint32_t generation = 0;; ++generation) {
    const JobEnd end = run_job(options, *plan, generation, nullptr, on_running, nullptr);
    // The failure of the previous attempt says more than the failed restart.
    if (generation == 0 || end.has_started || end.exit_code > kExitSignal)
      exit_code = end.exit_code;
    if (end.exit_code == 0 || !end.may_be_tried_again) return end.exit_code == 0 ? 0 : exit_code;
    if (end.has_started ? restarts == most : !has_spares) return exit_code;
    const std::set<int> failed(end.failed_hosts.begin(), end.failed_hosts.end());
    const Replacement replaced =
        replace_hosts(*plan, std::vector<int>(failed.begin(), failed.end()), spares);
    for (const std::string& sentence : replaced.sentences) say(sentence);
    if (!replaced.is_complete) return exit_code;
    if (end.has_started) say(cat("restart ", ++restarts, " of ", most));
  }
}

}  // namespace hvd::launcher
