// The launchers of this user that run on this machine; commands find and query them here (inspection.h). Blocking.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

inline constexpr char kNoJob[] = "no horovodrun of yours is running on this machine";
// Longer than a launcher queries its agents, even if it queries them twice because of another viewer. A launcher silent
// for this time may be stopped.
inline constexpr double kAnswerSeconds = 3;

struct RunningLauncher {
  std::string pid;
  UniqueFd socket;  // connected
};

// Returns one entry for each listening socket. `pid`: of one launcher, or empty for all.
std::vector<RunningLauncher> running_launchers(const std::string& pid = "");
// The running launchers, or that of this job: a pid, or what choose_job() takes. For a job of another machine, the command
// `arguments` replaces this process there.
Result<std::vector<RunningLauncher>> choose_launchers(const std::string& job,
                                                      std::span<const std::string> arguments);
// For a command that needs one job. `more`: the text after the job's id on the command line.
Status several_run(const std::string& command, const std::vector<RunningLauncher>& launchers,
                   const std::string& more = "");

// Code::kUnavailable, here and below: the launcher has ended since it was found.
Status send_question(const RunningLauncher& launcher, const std::string& question);
// Waits for data from the launcher. If it is stopped and silent for a while, notifies the user once.
void await_answer(const RunningLauncher& launcher);
// Appends the next data from the launcher. Returns false at the end.
Result<bool> read_more(const RunningLauncher& launcher, std::string& text);
// Queries all launchers at once, and returns their complete answers in the same order. Code::kDeadlineExceeded: the
// launcher was silent for `seconds`.
std::vector<Result<std::string>> ask_each(const std::vector<RunningLauncher>& launchers,
                                          const std::string& question,
                                          double seconds = kAnswerSeconds);
// Code::kDeadlineExceeded: "horovodrun with pid 4711 does not answer; it may be stopped ..."
Status silence_of(const std::string& pid);
// For the table of ps: "horovodrun, pid 4711: no answer; it may be stopped ..." and a newline.
std::string silent_row(const std::string& pid);

}  // namespace hvd::launcher
