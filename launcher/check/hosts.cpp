#include "launcher/check/hosts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/job/quiet_job.h"
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
  std::vector<QuietJob>
      jobs;  // one for each host: an unreachable host does not delay the answers of others
  for (Host& host : chosen) {
    host.slots = 1;
    jobs.emplace_back(job, std::vector{host});
  }
  std::vector<HostCheck> hosts;
  hosts.reserve(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::string& name = chosen[i].name;
    const auto output = jobs[i].output();
    hosts.push_back({name, output.ok() ? check_from_job(name, *output) : output.status()});
  }
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
