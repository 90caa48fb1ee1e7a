#include "launcher/job/quiet_job.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files/whole_io.h"
#include "base/text.h"
#include "launcher/job/job.h"
#include "launcher/output/report.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/reach/staged_environment.h"

namespace hvd::launcher {
namespace {

// The key of the child's last line.
constexpr const char* kFailedHosts = "failed_hosts";

int run(const Options& job, const std::vector<Host>& hosts, int output, pid_t parent) {
  // When this program ends, its jobs get SIGTERM and end their ranks.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (::getppid() != parent) return kExitLauncher;
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  prepare_process(job);
  const auto plan = plan_slots(hosts, std::nullopt);
  if (!plan.ok()) return refuse(plan.status());
  ResolvedEnvironment environment;
  const JobEnd end = run_job(job, *plan, 0, environment, nullptr, {}, nullptr);
  const std::string last = nlohmann::json{{kFailedHosts, end.failed_hosts}}.dump() + "\n";
  return write_all(STDOUT_FILENO, last) ? end.exit_code : kExitLauncher;
}

}  // namespace

QuietJob::QuietJob(const Options& job, const std::vector<Host>& hosts) {
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
  if (child_ == 0) ::_exit(run(job, hosts, ends[1], parent));
}

QuietJob::QuietJob(QuietJob&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      reading_(std::move(other.reading_)),
      why_not_(std::move(other.why_not_)) {}

Result<std::string> QuietJob::output() {
  HVD_RETURN_IF_ERROR(why_not_);
  std::string text;
  read_all(reading_.get(), text);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

QuietAnswer read_quiet_output(std::string_view text) {
  QuietAnswer answer;
  for (const std::string& line : split(text, '\n')) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    if (const auto failed = json.find(kFailedHosts); failed != json.end() && failed->is_array()) {
      for (const auto& host : *failed) answer.failed_hosts.push_back(host.get<int>());
    }
    const auto words = json.find("text"), rank = json.find("rank");
    if (words == json.end() || !words->is_string()) continue;
    QuietLine& added = answer.lines.emplace_back();
    added.text = words->get<std::string>();
    if (rank != json.end() && rank->is_number_integer()) added.rank = rank->get<int>();
  }
  return answer;
}

}  // namespace hvd::launcher
