// The launchers of this user that run on this machine, as the commands find and ask them (inspection.h). Blocking.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

inline constexpr char kNoJob[] = "no horovodrun of yours is running on this machine";
// A launcher asks its agents for less than this, once more if another viewer has just asked: one that has said nothing
// by then may be stopped.
inline constexpr double kAnswerSeconds = 3;

struct RunningLauncher {
  std::string pid;
  UniqueFd socket;  // connected
};

// One entry for each socket that listens. `pid`: of one launcher, or empty for all.
std::vector<RunningLauncher> running_launchers(const std::string& pid = "");
// The running launchers, or that of this job: a pid, or what choose_job() takes. For a job of another machine, the command
// `arguments` replaces this process there.
Result<std::vector<RunningLauncher>> choose_launchers(const std::string& job,
                                                      std::span<const std::string> arguments);
// For a command that needs one job. `more`: what stands behind its id on the command line.
Status several_run(const std::string& command, const std::vector<RunningLauncher>& launchers,
                   const std::string& more = "");

// Code::kUnavailable, here and below: the launcher has ended after it had been found.
Status send_question(const RunningLauncher& launcher, const std::string& question);
// Waits until the launcher says something, and tells the user once where it is stopped and has said nothing for a while.
void await_answer(const RunningLauncher& launcher);
// Appends what the launcher says next. False at the end.
Result<bool> read_more(const RunningLauncher& launcher, std::string& text);
// Asks all launchers at once, and returns their whole answers in the same order. Code::kDeadlineExceeded: the launcher
// has said nothing for `seconds`.
std::vector<Result<std::string>> ask_each(const std::vector<RunningLauncher>& launchers,
                                          const std::string& question,
                                          double seconds = kAnswerSeconds);
// Code::kDeadlineExceeded: "horovodrun with pid 4711 does not answer; it may be stopped ..."
Status silence_of(const std::string& pid);
// For the table of ps: "horovodrun, pid 4711: no answer; it may be stopped ..." and a newline.
std::string silent_row(const std::string& pid);

}  // namespace hvd::launcher
