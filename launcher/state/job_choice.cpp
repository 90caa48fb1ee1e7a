#include "launcher/state/job_choice.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {

Result<StateView> view_state() {
  StateView view;
  view.observer = ProcessIdentity::own();
  view.now = std::time(nullptr);
  HVD_ASSIGN_OR_RETURN(Settings settings, Settings::from_environment());
  const LaunchSettings launch(std::move(settings));
  view.local = local_state_path(launch.output.spool_dir);
  view.path = state_folder_path(launch.output.state_dir, environment_variable("HOME").value_or(""));
  std::vector<JobRecord> detached;
  const Status local = check_local_state(view.local);
  if (local.ok()) {
    HVD_ASSIGN_OR_RETURN(detached, read_records(view.local, &view.unreadable));
  }
  if (!view.path.empty()) {
    HVD_ASSIGN_OR_RETURN(view.records, read_records(view.path, &view.unreadable));
  } else if (!local.ok() && local.code() != Code::kNotFound) {
    return local;
  } else if (detached.empty()) {
    return not_found(
        "HOROVOD_STATE_DIR is none, or there is no HOME: there are no records of jobs");
  } else {
    view.path = view.local;
  }
  // If a job has two records, keep the one beside its log.
  std::erase_if(view.records, [&](const JobRecord& record) {
    const std::string name = job_folder_name(record.launcher);
    return std::ranges::any_of(
        detached, [&](const JobRecord& other) { return job_folder_name(other.launcher) == name; });
  });
  view.records.insert(view.records.end(), detached.begin(), detached.end());
  sort_by_age(view.records);
  return view;
}

std::string id_of(const JobRecord& record, const ProcessIdentity& observer) {
  const std::string pid = cat(record.launcher.pid);
  return record.launcher.is_beside(observer) ? pid : cat(printable(record.launcher.host), ":", pid);
}

namespace {

bool is_meant(const JobRecord& record, const std::string& word, const ProcessIdentity& observer) {
  return word.empty() || record.name == word || word == id_of(record, observer) ||
         word == cat(record.launcher.host, ":", record.launcher.pid);
}

// Returns whether the word is the number or the name of the record's Slurm job, as in squeue's output.
bool is_meant_by_slurm(const JobRecord& record, const std::string& word) {
  return !word.empty() && (record.allocation == word || record.allocation_name == word);
}

}  // namespace

std::string row_of(const JobRecord& record, const StateView& view) {
  return cat("\n  ", id_of(record, view.observer), record.name.empty() ? "" : "  ",
             printable(record.name), "  ", printable(join(record.command, " ")));
}

Status several_run(const std::string& command, const std::string& more, const std::string& rows) {
  return invalid_argument(cat("several jobs run; write horovodrun ", command, " ID", more,
                              ", with one of these:", rows));
}

Result<JobRecord> choose_job(const StateView& view, const std::string& word,
                             const std::string& command) {
  std::vector<const JobRecord*> running;
  const JobRecord* newest = nullptr;
  const auto consider = [&](const auto& is_it) {
    if (!running.empty()) return;
    const JobRecord* last = nullptr;
    for (const JobRecord& record : view.records) {
      if (!is_it(record)) continue;
      last = &record;
      if (view.life_of(record) == JobLife::kRuns) running.push_back(&record);
    }
    if (newest == nullptr) newest = last;
  };
  consider([&](const JobRecord& record) { return is_meant(record, word, view.observer); });
  consider([&](const JobRecord& record) { return is_meant_by_slurm(record, word); });
  if (running.size() > 1) {
    std::string rows;
    for (const JobRecord* record : running) rows += row_of(*record, view);
    return several_run(command, "", rows);
  }
  if (!running.empty()) return *running.front();
  if (newest != nullptr) return *newest;
  if (word.empty()) return not_found(cat("there is no job in ", printable(view.path)));
  return not_found(cat("there is no job ", printable(word), " in ", printable(view.path),
                       "; horovodrun ps -a lists all"));
}

std::string described(const JobRecord& record, const StateView& view) {
  const std::string id = id_of(record, view.observer);
  return record.name.empty() ? cat("job ", id) : cat("job ", printable(record.name), " (", id, ")");
}

Result<std::string> launcher_here(const std::string& word, std::span<const std::string> arguments) {
  if (word.empty()) return word;
  const auto view = view_state();
  const auto chosen = view.ok() ? choose_job(*view, word, arguments[0]) : view.status();
  const bool is_pid = chosen.ok() ? word == id_of(*chosen, view->observer)
                                  : chosen.status().code() == Code::kNotFound;
  if (parse_int(word) && (is_pid || !view.ok())) return word;
  HVD_ASSIGN_OR_RETURN(const JobRecord record, chosen);
  const JobLife life = view->life_of(record);
  const bool is_here = record.launcher.is_beside(view->observer);
  if (is_here && life == JobLife::kRuns) return cat(record.launcher.pid);
  // A launcher on another machine may still run without a recent sign of life, because its clock may be behind.
  if (!is_here && life != JobLife::kEnded)
    return run_there(record, *view, {arguments.begin(), arguments.end()});
  return not_found(
      cat(described(record, *view), " does not run; horovodrun ps -a shows how it has ended"));
}

Status go_to_running_job(std::span<const std::string> arguments) {
  const auto view = view_state();
  if (!view.ok()) return {};
  const auto record = choose_job(*view, "", arguments[0]);
  if (!record.ok()) return record.status().code() == Code::kNotFound ? Status() : record.status();
  if (record->launcher.is_beside(view->observer) || view->life_of(*record) != JobLife::kRuns)
    return {};
  return run_there(*record, *view, {arguments.begin(), arguments.end()});
}

bool means_running_job(const std::string& word) {
  const auto view = view_state();
  return view.ok() && !word.empty() &&
         std::ranges::any_of(view->records, [&](const JobRecord& record) {
           return is_meant(record, word, view->observer) && view->life_of(record) == JobLife::kRuns;
         });
}

void notify_if_stopped(const std::string& pid) {
  if (!is_stopped(parse_int(pid).value_or(0))) return;
  print_message(cat("horovodrun with pid ", pid,
                    " is stopped, as by Ctrl-Z, and says nothing until fg or kill -CONT ", pid,
                    " continues it"));
}

namespace {

// This environment variable marks a command that another machine has sent.
constexpr char kSent[] = "HOROVOD_COMMAND_SENT";

}  // namespace

std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal) {
  words.insert(words.begin(),
               {"env", cat("HOROVOD_STATE_DIR=", state_folder), cat(kSent, "=1"), horovodrun});
  const std::string& host = record.launcher.host;
  if (!record.allocation.empty() && !record.node.empty()) {
    words.insert(words.begin(), {"srun", cat("--jobid=", record.allocation), "--overlap",
                                 "--mpi=none", "-N1", "-n1", cat("--nodelist=", record.node),
                                 on_terminal ? "--pty" : "--quit-on-interrupt", "--"});
    return words;
  }
  // ssh passes its words to a shell on the other machine.
  std::vector<std::string> quoted;
  quoted.reserve(words.size());
  for (const std::string& word : words) quoted.push_back(shell_quote(word));
  return {"ssh", on_terminal ? "-t" : "-T", "-oBatchMode=yes", "-oConnectTimeout=10", "--",
          host,  join(quoted, " ")};
}

Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words) {
  // Another machine has sent the command here by ssh or srun: do not forward it to a third machine.
  if (environment_variable(kSent) || record.launcher.host == view.observer.host) {
    return unavailable(cat(described(record, view),
                           " runs in a container, or on another machine than the one of its name; "
                           "run horovodrun ",
                           words[0], " there"));
  }
  // The command top reads keys from the terminal.
  const bool on_terminal =
      words[0] == "top" && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::vector<std::string> line = remote_command_line(record, executable_folder() + "/horovodrun",
                                                      view.path, std::move(words), on_terminal);
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Leave standard input unread: it may belong to a shell loop around the command.
  const int nothing = on_terminal ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execvp(arguments[0], arguments.data());
  return system_error(
      cat("cannot run ", arguments[0], " to reach ", printable(record.launcher.host)), errno);
}

}  // namespace hvd::launcher
