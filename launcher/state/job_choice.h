// Finds the job that a user means in the state directory: by a name, a pid, HOST:PID, or the number or name of the
// Slurm allocation in which it runs. Runs a command of horovodrun on
// the machine of a job's launcher, where alone the launcher's process can be reached.
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
  std::string path;   // the state directory; without one, the directory of detached jobs
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

// "4711", or "b:4711" for a launcher of another machine or container.
std::string id_of(const JobRecord& record, const ProcessIdentity& observer);

// "job mnist (4711)", "job 4711".
std::string described(const JobRecord& record, const StateView& view);
// Formats a job for the error of several_run(): "\n  4711  mnist  python3 train.py".
std::string row_of(const JobRecord& record, const StateView& view);
// Returns an error for a command that needs one job. `more`: the text after the job's id on the command line.
Status several_run(const std::string& command, const std::string& more, const std::string& rows);

// Returns the running job with this name or id, else one in this Slurm allocation, else the newest of several. An empty
// word means all jobs. `command`: the name in errors, "stop".
Result<JobRecord> choose_job(const StateView& view, const std::string& word,
                             const std::string& command);

// Returns whether a word of a command may mean a job, and is not a flag.
inline bool may_be_job(const std::string& word) { return !word.empty() && word[0] != '-'; }
// Returns the pid of the launcher on this machine that a word means: the word itself if it is empty or a number without
// a record, else the launcher of choose_job(). Returns an error if the job has ended. For a job of another machine, the
// command `arguments` replaces this process there (run_there).
Result<std::string> launcher_here(const std::string& word, std::span<const std::string> arguments);
// For a command without a word, if no launcher runs on this machine: replaces this process by the command on the
// machine of the only running job. OK: no job runs.
Status go_to_running_job(std::span<const std::string> arguments);
// Notifies the user, before a wait for output or the end of the job, that the launcher on this machine is stopped.
void notify_if_stopped(const std::string& pid);
// Returns whether the word is the name of a running job, or the id of a job on another machine.
bool means_running_job(const std::string& word);

// Returns the command line: with srun if the launcher runs on a node of a Slurm job, else with ssh. `horovodrun`: its
// path, which must be the same there. `on_terminal`: the command gets a terminal there.
std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal);
// Replaces this process by `horovodrun WORDS` there. Returns only an error, for example if another machine has sent the
// command to this one.
Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words);

}  // namespace hvd::launcher
