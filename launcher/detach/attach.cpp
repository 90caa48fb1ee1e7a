#include "launcher/detach/attach.h"

#include <csignal>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/detach/spool_folder.h"
#include "launcher/detach/spool_reader.h"
#include "launcher/detach/tail_lines.h"
#include "launcher/output/report.h"
#include "launcher/settings/launch_settings.h"
#include "launcher/state/job_choice.h"

namespace hvd::launcher {
namespace {

constexpr size_t kLinesBefore = 1000;

// The job that runs, or else the one that ended last.
Result<std::string> likely_spool(const std::string& parent) {
  const auto folder = open_spool_folder(parent, false);
  if (!folder.ok() && folder.status().code() != Code::kNotFound) return folder.status();
  std::vector<std::string> running;
  std::string ended;
  int64_t ended_at = -1;
  for (const std::string& name : folder.ok() ? spool_names(*folder) : std::vector<std::string>()) {
    const UniqueFd spool = open_folder_in(*folder, name);
    if (!spool) continue;
    if (is_spool_in_use(spool)) {
      running.push_back(name);
    } else if (const int64_t at = last_change(spool); at > ended_at) {
      ended = name;
      ended_at = at;
    }
  }
  if (running.size() > 1) {
    return invalid_argument(
        cat("several detached jobs run; write horovodrun attach PID, with one of ",
            join(running, ", ")));
  }
  if (!running.empty()) return running[0];
  if (!ended.empty()) return ended;
  return not_found(
      "there is no detached job of yours on this machine; horovodrun --detach starts one");
}

int follow(SpoolReader& reader, const std::string& pid) {
  TailLines before(kLinesBefore);
  bool is_running = reader.is_running();
  while (auto chunk = reader.next()) before.add(*std::move(chunk));
  if (reader.begins_late())
    print_message("the oldest output is gone: the spool had no room for it");
  if (const size_t dropped = before.dropped(); dropped > 0) {
    print_message(cat(dropped, dropped == 1 ? " older line is" : " older lines are",
                      " not shown; attach shows the last ", kLinesBefore));
  }
  for (const OutputChunk& chunk : before.take()) {
    if (const int code = show(chunk); code != 0) return code;
  }
  if (is_running) notify_if_stopped(pid);
  while (is_running) {
    reader.wait();
    is_running = reader.is_running();
    while (const auto chunk = reader.next()) {
      if (const int code = show(*chunk); code != 0) return code;
    }
  }
  const auto code = reader.exit_code();
  if (code) return *code;
  print_message(
      cat("the launcher, pid ", pid,
          ", was killed, or got no memory or descriptor from the system, before its job had ended; "
          "agents end their ranks by themselves"));
  return kExitSignal + SIGKILL;
}

}  // namespace

int attach(std::span<const std::string> arguments) {
  const auto settings = Settings::from_environment();
  if (!settings.ok()) return refuse(settings.status());
  const std::string parent = LaunchSettings(*settings).output.spool_dir;
  if (arguments.size() > 1 || (!arguments.empty() && !may_be_job(arguments[0]))) {
    return refuse(invalid_argument(
        "write horovodrun attach [NAME or id of a job]; to run the program attach, put "
        "flags before it"));
  }
  const auto pid =
      arguments.empty() ? likely_spool(parent) : launcher_here(arguments[0], "attach", false);
  if (!pid.ok()) return refuse(pid.status());
  const auto reader = SpoolReader::open(parent, *pid);
  if (!reader.ok()) return refuse(reader.status());
  remove_old_spools();
  return follow(**reader, *pid);
}

void remove_old_spools() {
  const auto settings = Settings::from_environment();
  if (settings.ok()) remove_old_spools(LaunchSettings(*settings).output.spool_dir);
}

}  // namespace hvd::launcher
