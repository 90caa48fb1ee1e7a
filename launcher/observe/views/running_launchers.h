// Finds and queries the launchers of this user that run on this machine, for commands (inspection.h). Blocking. An
// error Code::kUnavailable means that the launcher has ended since it was found.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

inline constexpr char kNoJob[] = "no horovodrun of yours is running on this machine";
// Longer than a launcher needs to query its agents, even twice because of another viewer. After this time, a silent
// launcher may be stopped.
inline constexpr double kAnswerSeconds = 3;

struct RunningLauncher {
  std::string pid;
  UniqueFd socket;  // connected
};

// Returns one entry for each listening socket. `pid`: the pid of one launcher; empty: all launchers.
std::vector<RunningLauncher> running_launchers(const std::string& pid = "");
// Returns all running launchers, or the launcher of `job`: a pid, or a name for choose_job(). If the job runs on
// another machine, runs the command `arguments` there in place of this process.
Result<std::vector<RunningLauncher>> choose_launchers(const std::string& job,
                                                      std::span<const std::string> arguments);
// Returns an error for a command that needs one job. `more`: the text after the job's id on the command line.
Status several_run(const std::string& command, const std::vector<RunningLauncher>& launchers,
                   const std::string& more = "");

// Sends a question; the answer follows on the launcher's socket (read_more()).
Status send_question(const RunningLauncher& launcher, const std::string& question);
// Waits for data from the launcher. Once, informs the user if the launcher is silent because it is stopped.
void await_answer(const RunningLauncher& launcher);
// Appends the next data from the launcher. Returns false at the end.
Result<bool> read_more(const RunningLauncher& launcher, std::string& text);
// Queries all launchers at once, and returns their complete answers in the same order. Code::kDeadlineExceeded: the
// launcher was silent for `seconds`.
std::vector<Result<std::string>> ask_each(const std::vector<RunningLauncher>& launchers,
                                          const std::string& question,
                                          double seconds = kAnswerSeconds);
// Returns Code::kDeadlineExceeded: "horovodrun with pid 4711 does not answer; it may be stopped ...".
Status silence_of(const std::string& pid);
// Returns a line of ps: "horovodrun, pid 4711: no answer; it may be stopped ..." and a newline.
std::string silent_row(const std::string& pid);

}  // namespace hvd::launcher
