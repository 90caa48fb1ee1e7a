#include "launcher/check/hosts.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/check/format.h"
#include "launcher/command.h"
#include "launcher/host_choice.h"
#include "launcher/installation.h"
#include "launcher/job.h"
#include "launcher/report.h"

namespace hvd::launcher {
namespace {

// The job of one rank on each host, each of whose lines is an object.
Result<Options> asking_job(const Options& options) {
  Options job{options.settings, {executable_folder() + "/horovodrun", "--check-build", "--json"}};
  for (const auto& [key, value] : {std::pair{"log_format", "json"}, std::pair{"stdin", "none"},
                                   std::pair{"on_failure", "wait"}}) {
    HVD_RETURN_IF_ERROR(job.settings.set(key, value));
  }
  return job;
}

Result<SlotPlan> one_rank_each(const Settings& settings) {
  HVD_ASSIGN_OR_RETURN(auto hosts, choose_hosts(settings));
  for (Host& host : hosts) host.slots = 1;
  return plan_slots(hosts, std::nullopt);
}

// What the job writes to standard output; nothing comes when nothing was started.
Result<std::string> output_of(const Options& job, const SlotPlan& plan) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  const pid_t child = ::fork();
  if (child < 0) return system_error("cannot start a process", errno);
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    prepare_process(job);
    ::_exit(run_job(job, plan, 0).exit_code);
  }
  ::close(ends[1]);
  const UniqueFd reading(ends[0]);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t size = ::read(reading.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer, static_cast<size_t>(size));
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
  return text;
}

// The answers by rank, which is the host's place.
std::vector<HostCheck> read_answers(const std::string& text, const SlotPlan& plan) {
  std::vector<HostCheck> hosts;
  for (const Host& host : plan.hosts) {
    hosts.push_back({host.name, unavailable("it gave no answer")});
  }
  for (const std::string& line : split(text, '\n')) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("rank") || !json.contains("text")) continue;
    const auto& rank = json["rank"];
    if (!rank.is_number_unsigned() || rank >= hosts.size() || !json["text"].is_string()) continue;
    auto rows = check_from_json(json["text"].get<std::string>());
    if (rows.ok()) hosts[rank.get<size_t>()].rows = std::move(rows);
  }
  return hosts;
}

// The exit code, after a sentence for each host that lacks something.
int check_all_required(std::string_view names, std::span<const HostCheck> hosts) {
  int exit_code = 0;
  for (const HostCheck& host : hosts) {
    if (!host.rows.ok()) continue;
    const Status required = check_required(names, *host.rows);
    if (required.ok()) continue;
    say(cat(host.host, ": ", required.message()));
    exit_code = std::max(exit_code, required.code() == Code::kInvalidArgument ? kExitBadInput
                                                                              : kExitLauncher);
  }
  return exit_code;
}

}  // namespace

bool asks_hosts(const Settings& settings) {
  return settings.is_set("hosts") || settings.is_set("hostfile");
}

CheckAnswer check_hosts(const Options& options) {
  const Settings& settings = options.settings;
  const auto job = asking_job(options);
  if (!job.ok()) return {"", refuse(job.status())};
  const auto plan = one_rank_each(settings);
  if (!plan.ok()) return {"", refuse(plan.status())};
  const auto text = output_of(*job, *plan);
  if (!text.ok()) return {"", refuse(text.status())};
  const std::vector<HostCheck> hosts = read_answers(*text, *plan);
  const bool some_silent =
      std::ranges::any_of(hosts, [](const HostCheck& host) { return !host.rows.ok(); });
  CheckAnswer answer{settings.flag("json") ? comparison_as_json(hosts)
                                           : compare_checks(hosts, settings.flag("verbose"))};
  if (settings.is_set("require")) {
    answer.exit_code = check_all_required(settings.text("require"), hosts);
  }
  if (some_silent) answer.exit_code = std::max(answer.exit_code, kExitLauncher);
  return answer;
}

}  // namespace hvd::launcher
