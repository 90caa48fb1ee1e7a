#include "launcher/check/hosts.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/files/whole_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/job/job.h"
#include "launcher/output/report.h"
#include "launcher/plan/installation.h"

namespace hvd::launcher {
namespace {

// Returns the options of a job of one rank that writes JSON objects. The job needs no directory of the user: it starts
// in /, and enters the current directory if the host has it. Only a directory that the user names must exist.
Options asking_job(const Options& options) {
  Options job{options.settings, {executable_folder() + "/horovodrun", "--check-build", "--json"}};
  if (!options.settings.job.wdir.has_value() && !options.settings.job.stage.has_value()) {
    std::error_code error;
    const std::string present = std::filesystem::current_path(error).string();
    if (!error) job.command.insert(job.command.end(), {"--wdir", present});
    job.settings = job.settings.with("wdir", "/");
  }
  job.command.emplace_back("--");
  job.command.insert(job.command.end(), options.command.begin(), options.command.end());
  for (const auto& [key, value] : {std::pair{"log_format", "json"}, std::pair{"stdin", "none"}}) {
    job.settings = job.settings.with(key, value);
  }
  return job;
}

// A process that runs a job on one host, so that an unreachable host does not delay other hosts' answers.
class HostCheckProcess {
 public:
  HostCheckProcess(const Options& job, const Host& host) : host_(host.name) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      why_not_ = system_error("cannot make a pipe", errno);
      return;
    }
    reading_.reset(ends[0]);
    const UniqueFd writing(ends[1]);
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ < 0) why_not_ = system_error("cannot start a process", errno);
    if (child_ == 0) ::_exit(run(job, host, ends[1], parent));
  }
  HostCheckProcess(HostCheckProcess&& other) noexcept
      : host_(std::move(other.host_)),
        child_(std::exchange(other.child_, -1)),
        reading_(std::move(other.reading_)),
        why_not_(std::move(other.why_not_)) {}

  HostCheck answer() {
    if (!why_not_.ok()) return {host_, why_not_};
    std::string text;
    read_all(reading_.get(), text);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    return {host_, check_from_job(host_, text)};
  }

 private:
  static int run(const Options& job, const Host& host, int output, pid_t parent) {
    // When this program ends, its jobs get SIGTERM and end their ranks.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (::getppid() != parent) return kExitLauncher;
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    prepare_process(job);
    const auto plan = plan_slots({host}, std::nullopt);
    ResolvedEnvironment environment;
    return plan.ok() ? run_job(job, *plan, 0, environment, nullptr, {}, nullptr).exit_code
                     : refuse(plan.status());
  }

  std::string host_;
  pid_t child_ = -1;
  UniqueFd reading_;
  Status why_not_;
};

// Prints a sentence for each host that lacks something. Returns the exit code.
int check_all_required(std::string_view names, std::span<const HostCheck> hosts) {
  int exit_code = 0;
  for (const HostCheck& host : hosts) {
    if (!host.rows.ok()) continue;
    const Status required = check_required(names, *host.rows);
    if (required.ok()) continue;
    print_message(cat(host.host, ": ", required.message()), Tone::kError);
    exit_code = kExitLauncher;
  }
  return exit_code;
}

}  // namespace

bool asks_hosts(const LaunchSettings& settings) {
  return settings.hosts.list.has_value() || settings.hosts.hostfile.has_value();
}

Result<std::vector<HostCheck>> ask_hosts(const Options& options) {
  const Options job = asking_job(options);
  HVD_ASSIGN_OR_RETURN(std::vector<Host> chosen, choose_hosts(options.settings));
  std::vector<HostCheckProcess> processes;
  for (Host& host : chosen) {
    host.slots = 1;
    processes.emplace_back(job, host);
  }
  std::vector<HostCheck> hosts;
  hosts.reserve(processes.size());
  for (HostCheckProcess& process : processes) hosts.push_back(process.answer());
  return hosts;
}

CheckAnswer check_hosts(const Options& options) {
  const LaunchSettings& settings = options.settings;
  if (const Status known = check_names(settings); !known.ok()) return {"", refuse(known)};
  const auto asked = ask_hosts(options);
  if (!asked.ok()) return {"", refuse(asked.status())};
  const std::vector<HostCheck>& hosts = *asked;
  const bool some_silent =
      std::ranges::any_of(hosts, [](const HostCheck& host) { return !host.rows.ok(); });
  const bool is_plain = !settings.questions.json && !settings.job.verbose;
  if (const std::string asked = interpreters_of(hosts); is_plain && !asked.empty()) {
    print_message(about_interpreter(asked));
  }
  CheckAnswer answer{settings.questions.json ? comparison_as_json(hosts)
                                             : compare_checks(hosts, settings.job.verbose)};
  if (settings.questions.require.has_value()) {
    answer.exit_code = check_all_required(settings.questions.require.value_or(""), hosts);
  }
  if (some_silent) answer.exit_code = std::max(answer.exit_code, kExitLauncher);
  return answer;
}

}  // namespace hvd::launcher
