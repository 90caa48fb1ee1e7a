#include "launcher/reach/host_jobs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/plan/inner_launcher.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/rank_set.h"
#include "launcher/pmix/conversation.h"
#include "launcher/protocol/binding_choice.h"
#include "launcher/protocol/other_launchers.h"
#include "launcher/protocol/program.h"
#include "launcher/spawn/script_run.h"

namespace hvd::launcher {
namespace {

// Seconds that an agent may need to kill its ranks.
constexpr double kToKill = 2;

// Returns the key of a rank's result, as python/horovod/runner/_calls.py computes it.
std::string result_key(const Secret& results, int rank) {
  return to_hex(results.sign(as_bytes(cat("horovod.run result 1\n", rank))));
}

Shipping shipping_of(const JobOptions& job) {
  if (!job.ship) return Shipping::kWhereMissing;
  return *job.ship ? Shipping::kEverywhere : Shipping::kNever;
}

// Addresses of package indexes may contain passwords, so they leave the launcher's machine only if -x names them.
void remove_settings_of_indexes(Environment& environment, const EnvironmentChoice& choice) {
  std::erase_if(environment, [&](const auto& variable) {
    const std::string& name = variable.first;
    const bool is_setting = name.starts_with("PIP_") || name.starts_with("UV_");
    const auto names_it = [&](const std::string& chosen) { return fits(name, chosen); };
    return is_setting && value_of(choice.values, name).empty() &&
           std::ranges::none_of(choice.names, names_it);
  });
}

// A --kill-grace of at most this many seconds is not compared with Slurm's KillWait.
constexpr double kShortGrace = 2;

}  // namespace

HostJobs::HostJobs(const Options& options, const SlotPlan& plan, const HostTable& hosts,
                   uint32_t generation, const JobIdentity& identity, bool is_elastic)
    : options_(options),
      plan_(plan),
      hosts_(hosts),
      generation_(generation),
      is_elastic_(is_elastic),
      identity_(identity),
      methods_(options.settings, options.is_in_slurm_step),
      grace_(options.settings.end.kill_grace),
      end_signal_(to_lower(options.settings.end.end_signal) == "int" ? SIGINT : SIGTERM) {}

// Limits the grace period: after a cancel, Slurm waits for KillWait seconds and then kills the remaining processes of a
// step.
void HostJobs::end_before_slurm() {
  if (grace_ <= kShortGrace || !methods_.has_steps()) return;
  const auto seconds = read_kill_wait();
  if (!seconds || *seconds <= 0 || grace_ < *seconds) return;
  const double asked = std::exchange(grace_, *seconds - 1);
  if (generation_ > 0) return;
  print_message(cat("--kill-grace is ", grace_, " s and not ", asked, " s: Slurm kills a step ",
                    *seconds, " s after its SIGTERM (KillWait of scontrol show config)"));
}

Status HostJobs::read() {
  const LaunchSettings& settings = options_.settings;
  end_before_slurm();
  const std::string key = settings.ssh.identity_file.value_or("");
  if (!key.empty() && ::access(key.c_str(), R_OK) != 0) {
    return system_error(cat("cannot read the private key ", key, " given with -i"), errno);
  }
  const std::string readers = to_lower(settings.output.stdin_ranks.value);
  if (readers != "none" && readers != "all") {  // an elastic job may get more ranks
    HVD_RETURN_IF_ERROR(parse_ranks(readers, is_elastic_ ? kMaxSlots : hosts_.size())
                            .status()
                            .with_context("--stdin"));
  }
  HVD_ASSIGN_OR_RETURN(agent_, find_agent(executable_folder()));
  std::error_code error;
  directory_ = std::filesystem::current_path(error).string();
  if (error) return system_error("cannot find the current directory", error.value());
  // Keep the user's spelling of the directory, because the resolved path may not exist on other hosts.
  const std::string logical = environment_variable("PWD").value_or("");
  if (logical.starts_with('/') && std::filesystem::equivalent(logical, directory_, error)) {
    directory_ = logical;
  }
  if (settings.job.wdir.has_value())
    directory_ = std::filesystem::path(directory_) / settings.job.wdir.value_or("");
  if (settings.job.stage.has_value()) {
    const std::vector<std::string> paths = split(settings.job.stage.value_or(""), '\n');
    HVD_ASSIGN_OR_RETURN(code_, read_staged_code({paths.begin(), paths.end()}, directory_,
                                                 settings.job.wdir.has_value()));
    HVD_RETURN_IF_ERROR(check_words(*code_, options_.command));
  }
  const std::string& packages = settings.job.stage_env;
  if (!packages.empty() && ::access(packages.c_str(), R_OK) != 0) {
    return system_error(cat("--stage-env: cannot read ", packages), errno);
  }
  HVD_ASSIGN_OR_RETURN(environment_, read_environment_choice(settings));
  if (settings.environment.independent) return {};
  const Environment of_ranks = environment_of({}, true);
  std::string hindrance;
  if (is_elastic_) hindrance = kElastic;
  if (settings.environment.no_torch_env) hindrance = "--no-torch-env";
  joins_torchruns_ = hindrance.empty() && joins_torchruns(options_.command, of_ranks, plan_);
  torchrun_port_ = value_of(of_ranks, "PET_MASTER_PORT");
  remark_ = describe_inner_launcher(options_.command, of_ranks, plan_, hindrance);
  return check_inner_launcher(options_.command, of_ranks, plan_, hindrance);
}

SpawnTarget HostJobs::target_of(const Host& host) const {
  const LaunchSettings& settings = options_.settings;
  SpawnTarget target;
  target.host = host.name;
  target.user = host.user;
  target.port = host.port != 0 ? host.port : static_cast<int>(settings.ssh.port.value_or(0));
  target.identity_file = settings.ssh.identity_file.value_or("");
  target.agent_path = agent_;
  target.agent_dir = settings.job.agent_dir;
  const LaunchMethod method = methods_.of(host);
  target.command = method.command;
  target.is_step = method.is_step;
  target.may_be_local = method.may_be_local;
  return target;
}

net::Task<void> HostJobs::find_node(net::asio::any_io_executor executor, Host host) {
  const std::string question = methods_.question_about(host);
  if (question.empty()) co_return;
  auto run = ScriptRun::start(executor, question, {}, [](std::string_view) {});
  if (!run.ok()) co_return;
  questions_.insert(run->get());
  const ScriptAnswer answer = co_await (*run)->end();
  questions_.erase(run->get());
  if (answer.is_good()) methods_.take_answer(answer.output);
}

void HostJobs::cancel() {
  for (ScriptRun* const question : questions_) question->kill();
}

// Offers the package to a host. This machine has the package itself, so it needs a copy only if the package's folder
// also has other packages. If no host needs a copy, the package is not read, which saves 10 ms.
void HostJobs::offer_package(HostJob& job, bool is_local) {
  job.shipping = shipping_of(options_.settings.job);
  if (job.shipping == Shipping::kNever) return;
  job.agent_dir = options_.settings.job.agent_dir;
  const std::string programs = executable_folder();
  const std::string folder = find_python_package(programs);
  // With --ship, hosts other than this machine never use an installed package, even in a folder of the same name.
  if (is_local || job.shipping == Shipping::kWhereMissing) job.package_folder = folder;
  if (is_local && has_horovod_alone(folder)) return;
  if (!std::exchange(is_package_read_, true)) {
    // `--check-build -H` runs this horovodrun on each host.
    const bool is_check = options_.command.front() == programs + "/horovodrun";
    auto package = read_own_package(programs, is_check);
    if (package.ok())
      package_ = *std::move(package);
    else
      print_message(package.status().message());
  }
  if (package_) job.package = package_->offer;
}

Environment HostJobs::environment_of(const JobEnvironment& shared, bool is_local) const {
  const Environment chosen = chosen_environment(
      without_binding(environment()), flag_environment(options_.settings), environment_, is_local);
  Environment found = overlay(chosen, job_environment(shared));
  if (!options_.settings.job.stage_env.empty()) remove_settings_of_indexes(found, environment_);
  return found;
}

bool HostJobs::has_places_in_slurm() const {
  return !is_elastic_ && environment_variable("SLURM_JOB_ID").has_value();
}

Environment HostJobs::place_of(const RankRun& rank) const {
  const Slot& slot = rank.slot();
  Environment place = slot_environment(slot, rank.host().name(), hosts_.size());
  if (joins_torchruns_) {
    place.emplace_back("PET_NNODES", cat(hosts_.hosts().size()));
    place.emplace_back("PET_NODE_RANK", cat(slot.host));
  }
  return has_places_in_slurm() ? overlay(place, slurm_environment(plan_, slot)) : place;
}

void HostJobs::complete(StartOrder& order) const {
  Environment& environment = order.environment;
  const std::string address(value_of(environment, "MASTER_ADDR"));
  if (has_places_in_slurm() && !address.empty()) {
    environment.emplace_back("SLURM_LAUNCH_NODE_IPADDR", address);
  }
  if (joins_torchruns_ && !address.empty()) {
    environment.emplace_back("PET_MASTER_PORT", torchrun_port_.empty()
                                                    ? value_of(environment, "MASTER_PORT")
                                                    : torchrun_port_);
    environment.emplace_back("PET_MASTER_ADDR", address);
  }
  if (options_.settings.environment.no_torch_env) remove_torch_variables(environment);
}

HostJob HostJobs::job_of(const HostRun& host, bool is_local) {
  JobEnvironment shared;
  shared.job = identity_.number;
  shared.generation = generation_;
  shared.secret = identity_.secret.hex();
  shared.start_timeout = options_.settings.job.start_timeout.value;
  HostJob job;
  job.job = identity_.number;
  job.generation = generation_;
  job.host = static_cast<uint32_t>(host.number());
  job.hosts = static_cast<uint32_t>(hosts_.hosts().size());
  job.host_name = host.name();
  job.command = options_.command;
  job.python = find_environment_python(executable_folder());
  offer_package(job, is_local);
  job.has_environment = !options_.settings.job.stage_env.empty();
  job.environment_dir = options_.settings.job.stage_dir;
  job.working_directory = code_ ? code_->working_directory : directory_;
  job.is_staged = code_ != nullptr;
  if (code_) job.staged_path = code_->path;
  job.environment = environment_of(shared, is_local);
  std::vector<int> readers;  // the program of --check-build reads no input
  if (!is_question(options_)) readers = input_readers(options_.settings, hosts_.size());
  for (const RankRun* rank : host.ranks()) {
    Environment own = place_of(*rank);
    if (options_.settings.environment.no_torch_env) remove_torch_variables(own);
    if (is_elastic_) {
      own.emplace_back("HOROVOD_ELASTIC", "1");
      own.emplace_back("HOROVOD_ELASTIC_PROCESS", cat(rank->number()));
    }
    if (options_.settings.job.store_fd.has_value()) {
      own.emplace_back("HOROVOD_RESULT_KEY", result_key(results_secret_, rank->number()));
    }
    job.ranks.push_back(
        {rank->number(), std::move(own), std::ranges::binary_search(readers, rank->number())});
  }
  job.remote_init = options_.settings.job.remote_init;
  job.is_compared = hosts_.hosts().size() > 1;
  const SilenceLimits silence = silence_of(host);
  job.lease_seconds = silence.lease_seconds;
  job.host_timeout_seconds = silence.host_timeout_seconds;
  if (is_elastic_ || options_.settings.job.max_restarts.value > 0) {
    job.hold_after_seconds = silence.host_timeout_seconds;
  }
  // If an elastic job can continue without a silent host, the job abandons the host earlier than this limit.
  if (is_elastic_) {
    job.host_timeout_seconds = std::max(job.host_timeout_seconds, silent_ranks_end_after());
  }
  if (is_elastic_) job.leave_grace_seconds = options_.settings.elastic.leave_grace;
  job.kill_grace_seconds = grace_;
  job.end_signal = end_signal_;
  job.insecure_compat = options_.settings.launchers.insecure_compat;
  return job;
}

double HostJobs::silent_ranks_end_after() const { return lease_seconds() + kToKill; }

bool take_pmix(std::vector<Versions>& versions) {
  bool all = true;
  for (Versions& of_host : versions) {
    all &= std::erase_if(of_host, [](const auto& each) { return each.first == kPmix; }) > 0;
  }
  return all;
}

void order_pmix(const HostTable& hosts, std::vector<StartOrder>& orders) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks;
  for (const HostRun& host : hosts.hosts()) {
    names.push_back(host.name());
    std::vector<int>& own = ranks.emplace_back();
    for (const RankRun* rank : host.ranks()) own.push_back(rank->number());
  }
  for (StartOrder& order : orders) {
    order.environment.emplace_back("HOROVOD_PMIX_HOSTS", join(names, ","));
    order.environment.emplace_back("HOROVOD_PMIX_RANKS", to_ranges(ranks));
  }
}

}  // namespace hvd::launcher
