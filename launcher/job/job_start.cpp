// How a job comes to run: what is asked of each host, agents on all, the ranks.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/job/job_state.h"
#include "launcher/job/pmix_order.h"
#include "launcher/output/report.h"
#include "launcher/output/terminal_width.h"
#include "launcher/plan/host_choice.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/thread_shares.h"
#include "launcher/plan/versions.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kProgressAfter{700};
constexpr std::chrono::milliseconds kProgressEvery{200};

}  // namespace

Status JobLaunch::find_places() {
  const std::string key = options_.settings.text("ssh_identity_file");
  if (!key.empty() && ::access(key.c_str(), R_OK) != 0) {
    return system_error(cat("cannot read the private key ", key, " given with -i"), errno);
  }
  HVD_ASSIGN_OR_RETURN(agent_, find_agent(executable_folder()));
  if (options_.settings.is_set("store_fd")) {
    HVD_ASSIGN_OR_RETURN(
        parent_process_,
        ParentProcess::take(static_cast<int>(options_.settings.integer("store_fd"))));
  }
  std::error_code error;
  directory_ = std::filesystem::current_path(error).string();
  if (error) return system_error("cannot find the current directory", error.value());
  // As the user names it: a path through links may be the only one that other hosts have.
  const std::string logical = environment_variable("PWD").value_or("");
  if (logical.starts_with('/') && std::filesystem::equivalent(logical, directory_, error)) {
    directory_ = logical;
  }
  const Settings& settings = options_.settings;
  if (settings.is_set("wdir"))
    directory_ = std::filesystem::path(directory_) / settings.text("wdir");
  if (settings.is_set("stage")) {
    HVD_ASSIGN_OR_RETURN(
        code_, read_staged_code(settings.text("stage"), directory_, settings.is_set("wdir")));
  }
  HVD_ASSIGN_OR_RETURN(environment_, read_environment_choice(settings));
  OutputStyle style;
  style.directory = settings.text("output_filename");
  style.is_continued = generation_ > 0;
  style.tag = settings.text("tag");
  style.folds = settings.flag("fold");
  style.has_timestamps = settings.flag("prefix_timestamp");
  if (to_lower(settings.text("log_format")) == "json") style.format = LineFormat::kJson;
  if (settings.is_set("only_rank")) {
    auto shown = parse_ranks(settings.text("only_rank"), plan_.size());
    if (!shown.ok()) return shown.status().with_context("--only-rank");
    style.is_shown = *std::move(shown);
  }
  const auto asking = std::find_if(plan_.slots.begin(), plan_.slots.end(),
                                   [this](const Slot& slot) { return reads_input(slot.rank); });
  if (asking != plan_.slots.end()) style.asking_rank = asking->rank;
  HVD_ASSIGN_OR_RETURN(output_, Output::open(loop_.get_executor(), plan_, std::move(style)));
  if (generation_ == 0) {
    const Environment given = overlay(environment(), environment_.values);
    for (const std::string& sentence : about_misspelt_variables(given)) output_->say(sentence);
  }
  for (const std::string& name : unset_names(environment(), environment_)) {
    output_->say(
        cat("-x ", name, ": no such variable is set here, so ranks get none of that name"));
  }
  return {};
}

std::vector<HostStart> JobLaunch::host_starts() {
  const Settings& settings = options_.settings;
  std::vector<HostStart> starts;
  for (const Host& host : plan_.hosts) {
    const int index = static_cast<int>(starts.size());
    events_.push_back(std::make_unique<HostEvents>(*this, index));
    HostStart start;
    start.target.host = host.name;
    start.target.user = host.user;
    start.target.port = static_cast<int>(settings.integer("ssh_port"));
    start.target.identity_file = settings.text("ssh_identity_file");
    start.target.agent_path = agent_;
    start.target.agent_dir = settings.text("agent_dir");
    start.make_job = [this, index](bool is_local) {
      return host_job(index, is_local && !join_queue_);
    };
    start.events = events_.back().get();
    start.code = code_;
    starts.push_back(std::move(start));
  }
  return starts;
}

HostJob JobLaunch::host_job(int host, bool is_local) const {
  JobEnvironment shared;
  shared.job = job_;
  shared.generation = generation_;
  shared.secret = secret_.hex();
  shared.start_timeout = options_.settings.number("start_timeout");
  HostJob job;
  job.job = job_;
  job.generation = generation_;
  job.host = static_cast<uint32_t>(host);
  job.hosts = static_cast<uint32_t>(plan_.hosts.size());
  job.host_name = plan_.hosts[static_cast<size_t>(host)].name;
  job.command = options_.command;
  job.working_directory = code_ ? code_->working_directory : directory_;
  job.is_staged = code_ != nullptr;
  if (code_) job.staged_path = code_->path;
  job.environment = overlay(chosen_environment(environment(), flag_environment(options_.settings),
                                               environment_, is_local),
                            job_environment(shared));
  for (const Slot& slot : plan_.slots) {
    if (slot.host != host) continue;
    job.ranks.push_back({slot.rank, slot_environment(plan_, slot), reads_input(slot.rank)});
  }
  job.remote_init = options_.settings.text("remote_init");
  job.is_compared = plan_.hosts.size() > 1;
  job.lease_seconds = lease_of(options_.settings);
  job.kill_grace_seconds = grace_;
  job.end_signal = end_signal_;
  job.insecure_compat = options_.settings.flag("insecure_compat");
  return job;
}

// The scopes in which the original's workers meet, with their sizes; nothing unless they are admitted.
std::optional<rendezvous::ScopeSizes> JobLaunch::original_scopes() const {
  if (!options_.settings.flag("insecure_compat")) return {};
  rendezvous::ScopeSizes sizes = {{"global", plan_.size()}};
  for (const Slot& slot : plan_.slots) {
    sizes[cat("local_", plan_.hosts[static_cast<size_t>(slot.host)].name)] = slot.local_size;
    sizes[cat("cross_", slot.local_rank)] = slot.cross_size;
  }
  return sizes;
}

// Brings up all agents. Not 0: the exit code, and nothing was started anywhere.
net::Task<int> JobLaunch::prepare() {
  Spawner& by_agent =
      launch_agent(options_.settings).empty() ? static_cast<Spawner&>(ssh_) : by_command_;
  Spawner& local = join_queue_ ? static_cast<Spawner&>(*join_queue_) : local_;
  Spawner& remote = join_queue_ ? static_cast<Spawner&>(*join_queue_) : by_agent;
  preflight_ = std::make_unique<Preflight>(loop_.get_executor(), local, remote, host_starts());
  net::asio::co_spawn(loop_, show_progress(), net::asio::detached);
  auto errors = co_await preflight_->run(options_.settings.number("start_timeout"));
  progress_.cancel();
  output_->show_status("");
  failed_hosts_ = preflight_->failed_hosts();
  std::vector<std::unique_ptr<AgentLink>> links;
  if (interrupt_ == 0 && errors.empty()) {
    links = preflight_->take_links();
    warn_of_differences(links);
    master_endpoints_ = co_await find_master_endpoints(loop_.get_executor(), plan_, links);
    errors = find_lost(links);
    if (has_pmix_) order_pmix(plan_, master_endpoints_.orders);
  }
  if (interrupt_ != 0) {
    output_->say(cat("ended by ", signal_name(interrupt_), " before anything was started"));
  }
  for (const Status& error : errors) output_->say(error.message());
  if (interrupt_ != 0 || !errors.empty()) {
    co_await output_->drain();
    co_return interrupt_ != 0 ? kExitSignal + interrupt_ : kExitBadInput;
  }
  for (const std::string& warning : master_endpoints_.warnings) output_->say(warning);
  links_ = std::move(links);
  if (generation_ == 0) tell_thread_shares();
  co_return 0;
}

// Those that were ready, and are gone while others were prepared.
std::vector<Status> JobLaunch::find_lost(const std::vector<std::unique_ptr<AgentLink>>& links) {
  std::vector<Status> errors;
  for (size_t host = 0; host < links.size(); ++host) {
    const Status state = links[host]->state();
    if (state.ok()) continue;
    failed_hosts_.push_back(static_cast<int>(host));
    errors.push_back(state.with_context(cat("host ", plan_.hosts[host].name, ": prepare")));
  }
  return errors;
}

// Most starts are over before there is anything to show.
net::Task<void> JobLaunch::show_progress() {
  for (auto wait = kProgressAfter;; wait = kProgressEvery) {
    progress_.expires_after(wait);
    const auto [error] = co_await progress_.async_wait(net::use_tuple);
    if (error) co_return;
    output_->show_status(progress_line(preflight_->progress(), terminal_width(STDERR_FILENO)));
  }
}

void JobLaunch::warn_of_differences(const std::vector<std::unique_ptr<AgentLink>>& links) {
  std::vector<std::string> names;
  std::vector<Versions> versions;
  for (const auto& link : links) {
    names.push_back(plan_.hosts[names.size()].name);
    versions.push_back(link->versions());
  }
  has_pmix_ = take_pmix(versions);
  for (const std::string& sentence : describe_differences(names, versions)) output_->say(sentence);
}

void JobLaunch::tell_thread_shares() {
  std::vector<std::string> names;
  std::vector<uint32_t> threads;
  for (const auto& link : links_) {
    names.push_back(plan_.hosts[names.size()].name);
    threads.push_back(link->threads());
  }
  const std::string sentence = describe_thread_shares(names, threads);
  if (!sentence.empty()) output_->say(sentence);
}

net::Task<void> JobLaunch::start() {
  server_ =
      join_queue_
          ? join_queue_->take_server()
          : std::make_unique<rendezvous::Server>(
                loop_.get_executor(),
                rendezvous::ServerOptions{
                    .secret = secret_, .size = plan_.size(), .insecure_compat = original_scopes()});
  if (parent_process_) {
    // Who waits for the ranks' results has gone: they end, as by a signal.
    parent_process_->serve(loop_.get_executor(), secret_, *server_, [] { ::raise(SIGTERM); });
  }
  output_->on_consumed([this](int rank, OutputStream stream, size_t size) {
    const auto host = static_cast<size_t>(plan_.slots[static_cast<size_t>(rank)].host);
    if (links_[host]) links_[host]->consumed(rank, stream, size);
  });
  output_->on_broken([this](OutputStream stream, int error) {
    // A broken standard error alone loses nothing that the user still reads.
    if (stream == OutputStream::kStdout) act(supervisor_.on_output_broken(error));
  });
  auto server = InspectionServer::open(loop_.get_executor(),
                                       [this](std::string request, net::StreamSocket& caller) {
                                         return answer(std::move(request), caller);
                                       });
  // The job does without.
  if (!server.ok())
    log::info(cat("horovodrun ps cannot see this job: ", server.status().message()));
  else
    inspection_server_ = *std::move(server);
  if (const double seconds = options_.settings.number("timeout"); seconds > 0) {
    timeout_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds)));
    timeout_.async_wait([this, seconds](const net::error_code& error) {
      if (!error) net::asio::co_spawn(loop_, time_out(seconds), net::asio::detached);
    });
  }
  for (size_t host = 0; host < links_.size(); ++host) {
    net::asio::co_spawn(loop_, links_[host]->start(master_endpoints_.orders[host]),
                        [this, host](std::exception_ptr error, Status status) {
                          if (error) status = internal_error("the start was cut off");
                          if (status.ok() && ++started_ == links_.size()) start_input();
                          if (status.ok() || supervisor_.is_done(static_cast<int>(host))) return;
                          links_[host]->close();
                          failed_hosts_.push_back(static_cast<int>(host));
                          act(supervisor_.on_start_failed(static_cast<int>(host), status));
                        });
  }
  co_return;
}

}  // namespace hvd::launcher
