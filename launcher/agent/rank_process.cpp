#include "launcher/agent/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/text.h"

namespace hvd::launcher {

namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  // Away from 0 to 2, which the rank's dup2 would otherwise overwrite.
  Pipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  for (UniqueFd* end : {&pipe.read, &pipe.write}) {
    if (end->get() > STDERR_FILENO) continue;
    const int moved = ::fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0) return system_error("cannot make a pipe", errno);
    end->reset(moved);
  }
  return pipe;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs, made before the fork: nothing is allocated after it.
struct ChildNeeds {
  std::vector<char*> argv;
  std::vector<char*> shell_argv;  // for a script without an interpreter line, as shells do it
  std::vector<char*> envp;
  const char* path;
  const char* directory;
  pid_t agent;
  int stdin_fd, stdout_fd, stderr_fd, report_fd;  // the first may be -1: nothing to read
};

[[noreturn]] void give_up(const ChildNeeds& needs) {
  const int error = errno;
  [[maybe_unused]] const ssize_t size = ::write(needs.report_fd, &error, sizeof error);
  ::_exit(127);
}

bool is_without_format(const char* path) {
  char magic[4] = {};
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  const bool is_read = file >= 0 && ::read(file, magic, sizeof magic) > 0;
  if (file >= 0) ::close(file);
  return is_read && std::memcmp(magic, "\x7f" "ELF", sizeof magic) != 0;
}

[[noreturn]] void become_rank(const ChildNeeds& needs) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != needs.agent) ::_exit(127);  // it died before the line above
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = needs.stdin_fd >= 0 ? needs.stdin_fd : ::open("/dev/null", O_RDONLY);
  if (input < 0) {
    // A root without /dev: an end of file is what it should read.
    int ends[2];
    if (::pipe(ends) != 0) give_up(needs);
    ::close(ends[1]);
    if (::dup2(ends[0], STDIN_FILENO) < 0) give_up(needs);
    if (ends[0] > STDERR_FILENO) ::close(ends[0]);
  } else if (input != STDIN_FILENO) {
    if (::dup2(input, STDIN_FILENO) < 0) give_up(needs);
    if (input > STDERR_FILENO) ::close(input);
  }
  if (::dup2(needs.stdout_fd, STDOUT_FILENO) < 0) give_up(needs);
  if (::dup2(needs.stderr_fd, STDERR_FILENO) < 0) give_up(needs);
  if (::chdir(needs.directory) != 0) give_up(needs);
  ::execve(needs.path, needs.argv.data(), needs.envp.data());
  if (errno == ENOEXEC && is_without_format(needs.path)) {
    ::execve("/bin/sh", needs.shell_argv.data(), needs.envp.data());
    errno = ENOEXEC;
  }
  give_up(needs);
}

Status execution_error(const RankCommand& command, int error) {
  const std::string& program = command.arguments[0];
  if (error == ENOENT && ::access(command.path.c_str(), F_OK) == 0) {
    return not_found(cat("program '", program, "' cannot be run: the loader or interpreter that ",
                         command.path, " asks for is missing on this host"));
  }
  if (error == ENOEXEC) {
    return failed_precondition(cat("program '", program, "' cannot be run: ", command.path,
                                   " is not for this host's architecture"));
  }
  return system_error(cat("program '", program, "' cannot be run"), error);
}

}  // namespace

rlimit raise_descriptor_limit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit = before;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

Result<RankProcess> fork_rank(const RankCommand& command) {
  auto out = make_pipe();
  if (!out.ok()) return out.status();
  auto error = make_pipe();
  if (!error.ok()) return error.status();
  auto report = make_pipe();
  if (!report.ok()) return report.status();
  Pipe input;
  if (command.has_input) {
    auto made = make_pipe();
    if (!made.ok()) return made.status();
    input = *std::move(made);
  }

  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> shell_arguments = {"/bin/sh", command.path};
  shell_arguments.insert(shell_arguments.end(), arguments.begin() + 1, arguments.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  const ChildNeeds needs{pointers(arguments),     pointers(shell_arguments),
                         pointers(variables),     command.path.c_str(),
                         command.working_directory.c_str(), ::getpid(),
                         input.read.get(),        out->write.get(),
                         error->write.get(),      report->write.get()};
  // Nothing is copied: this process goes on when the child has executed, or given up.
  const pid_t pid = ::vfork();
  if (pid < 0) return system_error("cannot start a process", errno);
  if (pid == 0) {
    ::setrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
    become_rank(needs);
  }
  ::setpgid(pid, pid);  // here too, so that it holds whoever runs first
  RankProcess process;
  process.pid = pid;
  process.report = std::move(report->read);
  process.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (input.write) ::fcntl(input.write.get(), F_SETFL, O_NONBLOCK);
  process.input = std::move(input.write);
  for (Pipe* pipe : {&*out, &*error}) {
    ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
    process.output[pipe == &*out ? 0 : 1] = std::move(pipe->read);
  }
  return process;
}

Status confirm_rank(RankProcess& process, const RankCommand& command) {
  int failure = 0;
  ssize_t size = 0;
  do {
    size = ::read(process.report.get(), &failure, sizeof failure);
  } while (size < 0 && errno == EINTR);
  process.report.reset();
  return size == sizeof failure ? execution_error(command, failure) : Status();
}

Result<RankProcess> start_rank(const RankCommand& command) {
  HVD_ASSIGN_OR_RETURN(RankProcess process, fork_rank(command));
  const Status status = confirm_rank(process, command);
  if (status.ok()) return process;
  ::waitpid(process.pid, nullptr, 0);
  return status;
}

}  // namespace hvd::launcher
