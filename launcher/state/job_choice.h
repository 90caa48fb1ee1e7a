// Finds the job that a user means in the state directory: by a name, a pid, HOST:PID, or Slurm's number or name of the
// allocation in which it runs. Runs a command of horovodrun on
// the machine of a job's launcher: there alone its process can be reached.
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
  std::string path;   // the state directory; that of detached jobs where no other is used
  std::string local;  // the directory of detached jobs
  ProcessIdentity observer;
  int64_t now = 0;
  std::vector<JobRecord> records;  // oldest first
  size_t unreadable = 0;           // records that cannot be read

  JobLife life_of(const JobRecord& record) const {
    return launcher::life_of(record, observer, now);
  }
};

Result<StateView> view_state();

// "4711", or "b:4711" for a launcher of another machine or container.
std::string id_of(const JobRecord& record, const ProcessIdentity& observer);

// "job mnist (4711)", "job 4711".
std::string described(const JobRecord& record, const StateView& view);
// A job in the error of several_run(): "\n  4711  mnist  python3 train.py".
std::string row_of(const JobRecord& record, const StateView& view);
// For a command that needs one job. `more`: what stands behind its id on the command line.
Status several_run(const std::string& command, const std::string& more, const std::string& rows);

// The job that runs by this name or id, or else in this allocation of Slurm, or else the newest of these. An empty word
// means all jobs. `command`: for errors, "stop".
Result<JobRecord> choose_job(const StateView& view, const std::string& word,
                             const std::string& command);

// Whether a word of a command may mean a job, and is no flag.
inline bool may_be_job(const std::string& word) { return !word.empty() && word[0] != '-'; }
// The pid of the launcher beside this process that a word means: itself if it is empty or a number that no record
// knows, else that of the job that choose_job() finds. An error: the job has ended. For a job of another machine, the command
// `arguments` replaces this process there (run_there).
Result<std::string> launcher_here(const std::string& word, std::span<const std::string> arguments);
// For a command without a word, where no launcher runs beside this process: replaces this process by the command on the
// machine of the one job that runs. OK: none runs.
Status go_to_running_job(std::span<const std::string> arguments);
// Notifies the user, before a wait for output or the end of the job, that the launcher beside this process is stopped.
void notify_if_stopped(const std::string& pid);
// Whether it is the name of a job that runs, or the id of one on another machine.
bool means_running_job(const std::string& word);

// The command line: by srun where the launcher runs on a node of a job of Slurm, else by ssh. `horovodrun`: its path, the
// same there. `on_terminal`: the command gets a terminal there.
std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal);
// Replaces this process by `horovodrun WORDS` there. Returns only an error, as where another machine has sent the
// command to this one.
Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words);

}  // namespace hvd::launcher
