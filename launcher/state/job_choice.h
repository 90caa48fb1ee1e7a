// Finds a job in the state directory: by its name, its pid, HOST:PID, or the number or name of its Slurm allocation.
// Runs a command of horovodrun on the machine of a job's launcher, because the launcher's process can be reached only
// on that machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "launcher/state/job_record.h"

namespace hvd::launcher {

// The state of all jobs when a command begins.
struct StateView {
  std::string path;   // the state directory; if there is none, the directory of detached jobs
  std::string local;  // the directory of detached jobs
  ProcessIdentity observer;
  int64_t now = 0;
  std::vector<JobRecord> records;  // oldest first
  size_t unreadable = 0;           // number of unreadable records

  JobLife life_of(const JobRecord& record) const {
    return launcher::life_of(record, observer, now);
  }
};

Result<StateView> view_state();

// Returns "4711", or "b:4711" for a launcher of another machine or container.
std::string id_of(const JobRecord& record, const ProcessIdentity& observer);

// Returns "job mnist (4711)" or "job 4711".
std::string described(const JobRecord& record, const StateView& view);
// Returns a line for the error of several_run(): "\n  4711  mnist  python3 train.py".
std::string row_of(const JobRecord& record, const StateView& view);
// Returns an error for a command that needs one job. `more`: the text after the job's id on the command line.
Status several_run(const std::string& command, const std::string& more, const std::string& rows);

// Returns the running job that the word names: by its name or id, else by its Slurm job. If none of these jobs runs,
// returns the newest one. Returns an error if several run. An empty word means all jobs. `command`: the command's name
// for errors, "stop".
Result<JobRecord> choose_job(const StateView& view, const std::string& word,
                             const std::string& command);

inline bool may_be_job(const std::string& word) { return !word.empty() && word[0] != '-'; }
// Returns the pid of the launcher on this machine that a word means: the word itself if it is empty or a pid, else the
// launcher of choose_job(). Returns an error if the job has ended. If the job runs on another machine, runs the command
// `arguments` there (run_there).
Result<std::string> launcher_here(const std::string& word, std::span<const std::string> arguments);
// For a command without a word, when no launcher runs on this machine. If exactly one job runs, on another machine,
// runs the command there (run_there). Returns OK if none runs there, and an error if several run.
Status go_to_running_job(std::span<const std::string> arguments);
// Notifies the user if the launcher on this machine is stopped. Call before a wait for output or for the end of the
// job.
void notify_if_stopped(const std::string& pid);
// Returns whether the word is the name or the id of a running job.
bool means_running_job(const std::string& word);

// Returns the command line: with srun if the launcher runs on a node of a Slurm job, else with ssh. `horovodrun`: its
// path, equal on both machines. `on_terminal`: the command gets a terminal on that machine.
std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal);
// Replaces this process by `horovodrun WORDS` on the machine of the job's launcher. Returns only an error, for example
// if another machine has sent the command to this machine.
Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words);

}  // namespace hvd::launcher
