#include "launcher/spawn/local_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/settings.h"

namespace hvd::launcher {

Result<std::string> output_of(const std::vector<std::string>& command, Deadline deadline) {
  return hvd::output_of({.arguments = command, .environment = environment()}, deadline);
}

Status become_program(const std::vector<std::string>& command,
                      const VariablesOfProgram& environment) {
  set_back_signals();
  ::execvpe(command.front().c_str(), pointers_to(command).data(),
            pointers_to(environment_strings(environment)).data());
  return system_error("cannot start " + command.front(), errno);
}

Result<int> run_program(const std::vector<std::string>& command,
                        const VariablesOfProgram& environment) {
  sigset_t handed_on;
  sigemptyset(&handed_on);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&handed_on, number);
  }
  set_back_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &handed_on, &before);
  const auto pid = spawn_program({.arguments = command, .environment = environment});
  while (pid.ok()) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&handed_on, &info);
    if (number == SIGCHLD) {
      siginfo_t ended{};
      ::waitid(P_PID, static_cast<id_t>(*pid), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid == *pid) break;
    } else if (number > 0 && info.si_code <= 0) {
      // Forward only signals of other processes: the terminal sends its signals to the program, too.
      ::kill(*pid, number);
    }
  }
  Result<int> code = pid.ok() ? Result<int>(wait_for_exit(*pid)) : Result<int>(pid.status());
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace hvd::launcher
