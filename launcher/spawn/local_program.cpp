#include "launcher/spawn/local_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostOutput = 1 << 20;
// A shell reports the end by a signal as this and the signal's number.
constexpr int kEndedBySignal = 128;

// The arguments or the environment of a program, as the system wants them; borrows nothing.
class Strings {
 public:
  explicit Strings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& each : strings_) pointers_.push_back(each.data());
    pointers_.push_back(nullptr);
  }
  Strings(const Strings&) = delete;
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

std::vector<std::string> joined(const VariablesOfProgram& environment) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : environment) texts.push_back(cat(name, "=", value));
  return texts;
}

Status cannot_run(const std::string& program, int error) {
  const Status status = system_error("cannot run " + program, error);
  return error == ENOENT ? not_found(status.message()) : status;
}

// Standard output and error go to `output` when it is given; nothing is read from standard input
// then, and the program has a process group of its own.
Result<pid_t> start(const std::vector<std::string>& command, const VariablesOfProgram& environment,
                    std::optional<int> output) {
  Strings arguments(command);
  Strings variables(joined(environment));
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  short flags = POSIX_SPAWN_SETSIGMASK;
  if (output) {
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, *output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, *output, STDERR_FILENO);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  ::posix_spawnattr_setflags(&attributes, flags);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, command.front().c_str(), &actions, &attributes,
                                   arguments.get(), variables.get());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return cannot_run(command.front(), error);
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? kEndedBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& command, Deadline deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  HVD_ASSIGN_OR_RETURN(const pid_t pid, start(command, environment(), writing.get()));
  writing.reset();
  std::string text;
  std::array<char, 4096> buffer{};
  bool is_late = false;
  while (text.size() < kMostOutput) {
    pollfd readable{reading.get(), POLLIN, 0};
    const int ready = ::poll(&readable, 1, deadline.poll_timeout());
    if (ready < 0 && errno == EINTR) continue;
    is_late = ready == 0;
    if (ready <= 0) break;
    const ssize_t size = ::read(reading.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  ::kill(-pid, SIGKILL);  // it has closed its output, or is not to go on
  wait_for(pid);
  if (is_late) return deadline_exceeded(cat(join(command, " "), " did not answer in time"));
  return text;
}

Status become_program(const std::vector<std::string>& command,
                      const VariablesOfProgram& environment) {
  Strings arguments(command);
  Strings variables(joined(environment));
  ::execvpe(command.front().c_str(), arguments.get(), variables.get());
  return cannot_run(command.front(), errno);
}

Result<int> run_program(const std::vector<std::string>& command,
                        const VariablesOfProgram& environment) {
  sigset_t handed_on;
  sigemptyset(&handed_on);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&handed_on, number);
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &handed_on, &before);
  const auto pid = start(command, environment, {});
  while (pid.ok()) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&handed_on, &info);
    if (number == SIGCHLD) {
      siginfo_t ended{};
      ::waitid(P_PID, static_cast<id_t>(*pid), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid == *pid) break;
    } else if (number > 0 && info.si_code <= 0) {  // a terminal's have reached the program as well
      ::kill(*pid, number);
    }
  }
  Result<int> code = pid.ok() ? Result<int>(wait_for(*pid)) : Result<int>(pid.status());
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace hvd::launcher
