#include "launcher/reach/host_startup.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/terminal_text.h"
#include "launcher/plan/host_remarks.h"
#include "launcher/plan/installation.h"
#include "launcher/reach/master_endpoint.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kProgressAfter{700};
constexpr std::chrono::milliseconds kProgressEvery{200};

// Returns the hosts that use a copy: their versions have this key. `receivers`: the hosts that received the copy now.
CopyHolders copies_of(const std::vector<const HostRun*>& hosts, std::string_view key) {
  CopyHolders copies;
  for (const HostRun* const host : hosts) {
    const std::string value = host->link()->version_of(key);
    if (!value.empty()) copies.hosts.push_back(host->name());
    if (value == kCopySent) copies.receivers.push_back(host->name());
  }
  return copies;
}

}  // namespace

HostStartup::HostStartup(net::asio::io_context& loop, const Options& options, HostTable& hosts,
                         HostJobs& host_jobs, JoinQueue* join_queue,
                         ResolvedEnvironment& environment)
    : loop_(loop),
      options_(options),
      hosts_(hosts),
      host_jobs_(host_jobs),
      join_queue_(join_queue),
      progress_(loop),
      local_(options.settings.environment.no_env),
      local_sessions_(
          join_queue ? static_cast<Spawner&>(*join_queue) : local_,
          join_queue ? SessionSpawner::Return::kByAgent : SessionSpawner::Return::kNever),
      remote_sessions_(remote_, SessionSpawner::Return::kBySpawner),
      preflight_(loop.get_executor(), local_sessions_,
                 join_queue ? local_sessions_ : remote_sessions_),
      archive_(loop.get_executor()),
      environment_(loop.get_executor(), options.settings, environment) {}

net::Task<std::vector<Status>> HostStartup::reach() {
  std::vector<HostStart> starts;
  for (HostRun& host : hosts_.hosts()) starts.push_back(start_of(host));
  environment_.expect(starts.size());
  std::vector<Status> errors =
      co_await preflight_.run(std::move(starts), options_.settings.job.start_timeout.value);
  environment_.end_chain();
  // If a file cannot be resolved, report one error for the job, and not one error for each host.
  const std::string cause = environment_.failure();
  const auto is_cause = [&](const Status& error) { return error.message().ends_with(cause); };
  const auto first = std::ranges::find_if(errors, is_cause);
  if (!cause.empty() && first != errors.end()) {
    errors.erase(std::remove_if(first + 1, errors.end(), is_cause), errors.end());
  }
  co_return errors;
}

net::Task<HostStartup::Outcome> HostStartup::run(JobOutput& output) {
  output_ = &output;
  if (join_queue_) {
    join_queue_->on_return(
        [this](std::unique_ptr<Duplex>& connection, Resume offer, Nonce challenge) {
          return local_sessions_.resume(connection, offer, challenge);
        });
  }
  net::asio::co_spawn(loop_, show_progress(output), net::asio::detached);
  Outcome outcome;
  outcome.errors = co_await reach();
  is_reached_ = true;
  progress_.cancel();
  output.terminal().show_status("");
  if (is_cancelled_ || !outcome.errors.empty()) co_return outcome;
  const bool has_pmix = compare(output);
  MasterEndpoints endpoints = co_await find_master_endpoints(loop_.get_executor(), hosts_);
  find_lost(outcome);
  if (has_pmix) order_pmix(hosts_, endpoints.orders);
  for (HostRun& host : hosts_.hosts()) {
    host.order() = std::move(endpoints.orders[static_cast<size_t>(host.number())]);
    host_jobs_.complete(host.order());
  }
  outcome.warnings = std::move(endpoints.warnings);
  co_return outcome;
}

net::Task<Status> HostStartup::add(HostRun& host) {
  if (!is_cancelled_) co_await host_jobs_.find_node(loop_.get_executor(), host.host());
  if (is_cancelled_) co_return aborted("the job ends");
  std::vector<HostStart> starts;
  starts.push_back(start_of(host));
  environment_.expect(starts.size());
  const std::vector<Status> errors =
      co_await preflight_.run(std::move(starts), options_.settings.job.start_timeout.value);
  environment_.end_chain();
  if (!errors.empty()) co_return errors.front();
  if (is_cancelled_) co_return aborted("the job ends");
  if (output_ != nullptr) report_copies({&host});
  co_return Status();
}

void HostStartup::cancel() {
  is_cancelled_ = true;
  host_jobs_.cancel();
  preflight_.cancel();
}

HostStart HostStartup::start_of(HostRun& host) {
  HostStart start;
  start.host = &host;
  start.target = host_jobs_.target_of(host.host());
  start.make_job = [this, &host](bool is_local) {
    return host_jobs_.job_of(host, is_local && !join_queue_);
  };
  start.code = host_jobs_.code();
  start.package = [this]() -> net::Task<Result<AgentLink::NextPart>> {
    if (host_jobs_.package()) co_return co_await archive_.parts(host_jobs_.package());
    co_return failed_precondition("the agent wants a package that was not offered");
  };
  start.environment = [this, name = host.name()](EnvironmentWanted wanted) {
    return environment_.offer(name, std::move(wanted));
  };
  return start;
}

void HostStartup::report_copies(const std::vector<const HostRun*>& hosts) const {
  // Print nothing for a check of the hosts, because other programs read its output.
  const auto& package = host_jobs_.package();
  if (package && !package->offer.program.empty()) return;
  const EnvironmentUse environment{.file = environment_.name(),
                                   .packages = environment_.packages(),
                                   .bytes = environment_.bytes(),
                                   .copies = copies_of(hosts, kEnvironmentCopy)};
  if (!environment.copies.hosts.empty()) output_->print(describe_environment_use(environment));
  if (!package) return;
  const PackageUse use{.copies = copies_of(hosts, kPackageCopy),
                       .version = package->offer.version,
                       .folder = find_python_package(executable_folder()),
                       .is_everywhere = options_.settings.job.ship.value_or(false),
                       .bytes_sent = archive_.packed_size()};
  if (!use.copies.hosts.empty()) output_->print(describe_package_use(use));
}

// Adds an error for each host whose agent was ready, but has ended since.
void HostStartup::find_lost(Outcome& outcome) {
  for (HostRun& host : hosts_.hosts()) {
    const Status state = host.link()->loss();
    if (state.ok()) continue;
    if (!host.is_over()) host.to(HostState::kLost, HostCause::kLost);
    outcome.errors.push_back(state.with_context(cat("host ", host.name(), ": prepare")));
  }
}

// Shows progress after a delay, because most starts take less time.
net::Task<void> HostStartup::show_progress(JobOutput& output) {
  for (auto wait = kProgressAfter;; wait = kProgressEvery) {
    progress_.expires_after(wait);
    const auto [error] = co_await progress_.async_wait(net::use_tuple);
    // Cancelling the timer has no effect on a wait that has already ended.
    if (error || is_reached_) co_return;
    output.terminal().show_status(
        progress_line(progress_of(hosts_), terminal_width(STDERR_FILENO)));
  }
}

bool HostStartup::compare(JobOutput& output) const {
  std::vector<std::string> names;
  std::vector<std::string> machines;
  std::vector<Versions> versions;
  for (const HostRun& host : hosts_.hosts()) {
    names.push_back(host.name());
    machines.push_back(host.link()->machine());
    versions.push_back(host.link()->prepared().versions);
  }
  for (const std::string& sentence : describe_same_machines(names, machines))
    output.print(sentence);
  const bool has_pmix = take_pmix(versions);
  for (const std::string& sentence : describe_differences(names, versions)) output.print(sentence);
  std::vector<const HostRun*> hosts;
  for (const HostRun& host : hosts_.hosts()) hosts.push_back(&host);
  report_copies(hosts);
  return has_pmix;
}

}  // namespace hvd::launcher
