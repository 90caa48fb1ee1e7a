#include "launcher/job/host_startup.h"

#include <unistd.h>

#include <chrono>

#include "base/text.h"
#include "launcher/job/launch_progress.h"
#include "launcher/job/pmix_order.h"
#include "launcher/output/terminal_width.h"
#include "launcher/plan/same_machine.h"
#include "launcher/plan/versions.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kProgressAfter{700};
constexpr std::chrono::milliseconds kProgressEvery{200};

}  // namespace

HostStartup::HostStartup(net::asio::io_context& loop, const Options& options, const SlotPlan& plan,
                         HostJobs& host_jobs, JoinQueue* join_queue)
    : loop_(loop),
      options_(options),
      plan_(plan),
      host_jobs_(host_jobs),
      join_queue_(join_queue),
      progress_(loop),
      local_(options.settings.flag("no_env")),
      local_sessions_(
          join_queue ? static_cast<Spawner&>(*join_queue) : local_,
          join_queue ? SessionSpawner::Return::kByAgent : SessionSpawner::Return::kNever),
      remote_sessions_(remote_, SessionSpawner::Return::kBySpawner) {}

net::Task<HostStartup::Outcome> HostStartup::run(const std::vector<AgentEvents*>& events,
                                                 JobOutput& output) {
  if (join_queue_) {
    join_queue_->on_return(
        [this](std::unique_ptr<Duplex>& connection, Resume offer, Nonce challenge) {
          return local_sessions_.resume(connection, offer, challenge);
        });
  }
  preflight_ = std::make_unique<Preflight>(loop_.get_executor(), local_sessions_,
                                           join_queue_ ? local_sessions_ : remote_sessions_,
                                           host_starts(events));
  net::asio::co_spawn(loop_, show_progress(output), net::asio::detached);
  Outcome outcome;
  outcome.errors = co_await preflight_->run(options_.settings.number("start_timeout"));
  progress_.cancel();
  output.show_status("");
  outcome.failed_hosts = preflight_->failed_hosts();
  if (is_cancelled_ || !outcome.errors.empty()) co_return outcome;
  outcome.links = preflight_->take_links();
  const bool has_pmix = compare(outcome.links, output);
  outcome.master_endpoints =
      co_await find_master_endpoints(loop_.get_executor(), plan_, outcome.links);
  find_lost(outcome);
  if (has_pmix) order_pmix(plan_, outcome.master_endpoints.orders);
  co_return outcome;
}

void HostStartup::cancel() {
  is_cancelled_ = true;
  if (preflight_) preflight_->cancel();
  for (Preflight& addition : additions_) addition.cancel();
}

std::vector<HostStart> HostStartup::host_starts(const std::vector<AgentEvents*>& events) const {
  std::vector<HostStart> starts;
  for (size_t host = 0; host < plan_.hosts.size(); ++host) {
    starts.push_back(start_of(static_cast<int>(host), events[host]));
  }
  return starts;
}

HostStart HostStartup::start_of(int host, AgentEvents* events) const {
  HostStart start;
  start.target = host_jobs_.target_of(plan_.hosts[static_cast<size_t>(host)]);
  start.make_job = [this, host](bool is_local) {
    return host_jobs_.job_of(host, is_local && !join_queue_);
  };
  start.events = events;
  start.code = host_jobs_.code();
  return start;
}

net::Task<Result<std::unique_ptr<AgentLink>>> HostStartup::add(int host, AgentEvents* events) {
  co_await host_jobs_.find_node(loop_.get_executor(), plan_.hosts[static_cast<size_t>(host)]);
  if (is_cancelled_) co_return aborted("the job ends");
  std::vector<HostStart> starts;
  starts.push_back(start_of(host, events));
  const auto addition =
      additions_.emplace(additions_.end(), loop_.get_executor(), local_sessions_,
                         join_queue_ ? local_sessions_ : remote_sessions_, std::move(starts));
  const std::vector<Status> errors =
      co_await addition->run(options_.settings.number("start_timeout"));
  // It stays: what a host that was given up still does may end later.
  if (!errors.empty()) co_return errors.front();
  if (is_cancelled_) co_return aborted("the job ends");
  auto links = addition->take_links();
  co_return std::move(links.front());
}

// Finds the hosts whose agents were ready and ended while other hosts were prepared.
void HostStartup::find_lost(Outcome& outcome) const {
  for (size_t host = 0; host < outcome.links.size(); ++host) {
    const Status state = outcome.links[host]->state();
    if (state.ok()) continue;
    outcome.failed_hosts.push_back(static_cast<int>(host));
    outcome.errors.push_back(state.with_context(cat("host ", plan_.hosts[host].name, ": prepare")));
  }
}

// The progress line appears after a delay: most starts end before it.
net::Task<void> HostStartup::show_progress(JobOutput& output) {
  for (auto wait = kProgressAfter;; wait = kProgressEvery) {
    progress_.expires_after(wait);
    const auto [error] = co_await progress_.async_wait(net::use_tuple);
    if (error) co_return;
    output.show_status(progress_line(preflight_->progress(), terminal_width(STDERR_FILENO)));
  }
}

bool HostStartup::compare(const std::vector<std::unique_ptr<AgentLink>>& links,
                          JobOutput& output) const {
  std::vector<std::string> names;
  std::vector<std::string> machines;
  std::vector<Versions> versions;
  for (const auto& link : links) {
    names.push_back(plan_.hosts[names.size()].name);
    machines.push_back(link->machine());
    versions.push_back(link->versions());
  }
  for (const std::string& sentence : describe_same_machines(names, machines)) output.say(sentence);
  const bool has_pmix = take_pmix(versions);
  for (const std::string& sentence : describe_differences(names, versions)) output.say(sentence);
  return has_pmix;
}

}  // namespace hvd::launcher
