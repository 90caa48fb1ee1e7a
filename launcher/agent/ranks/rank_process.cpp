#include "launcher/agent/ranks/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

// The reason why one of several ranks failed to start.
struct Complaint {
  uint32_t index;
  int error;
  bool is_bound;  // false: the rank could not get its CPUs
};

// Grows the descriptor table once, while the process has one thread. If several threads share the table, each growth
// waits for milliseconds until every processor has passed through the scheduler.
void make_room_for_descriptors(size_t ranks) {
  constexpr size_t kPerRank = 3;
  constexpr size_t kOthers = 64;
  const int highest =
      ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(kOthers + kPerRank * ranks));
  if (highest >= 0) ::close(highest);
}

constexpr std::string_view kTaskPid = "SLURM_TASK_PID=";
constexpr size_t kMostDigits = 10;  // of a pid

// Returns the place of the value of SLURM_TASK_PID, where the child writes its pid, as a task of srun finds it there.
// Returns null without that variable.
char* room_for_pid(std::vector<std::string>& variables) {
  for (std::string& variable : variables) {
    if (!variable.starts_with(kTaskPid)) continue;
    variable.assign(kTaskPid).append(kMostDigits, '\0');
    return variable.data() + kTaskPid.size();
  }
  return nullptr;
}

// Data for the child, created before the fork, because the child must not allocate memory.
struct ChildNeeds {
  std::vector<char*> argv;
  std::vector<char*> shell_argv;  // for a script without "#!", as in shells
  std::vector<char*> envp;
  char* pid_text;  // result of room_for_pid(), inside of `envp`
  const RankCommand* command;
  const std::vector<int>* ignored;
  pid_t agent;
  uint32_t index;
  int stdin_fd, stdout_fd, stderr_fd, report_fd;  // stdin_fd is -1 without input
};

[[noreturn]] void give_up(const ChildNeeds& needs, bool is_bound = true) {
  const Complaint complaint{needs.index, errno, is_bound};
  [[maybe_unused]] const ssize_t size = ::write(needs.report_fd, &complaint, sizeof complaint);
  ::_exit(127);
}

bool is_without_format(const char* path) {
  char magic[4] = {};
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  const bool is_read = file >= 0 && ::read(file, magic, sizeof magic) > 0;
  if (file >= 0) ::close(file);
  return is_read && std::memcmp(magic,
                                "\x7f"
                                "ELF",
                                sizeof magic) != 0;
}

[[noreturn]] void become_rank(const ChildNeeds& needs) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != needs.agent) ::_exit(127);  // the agent ended before prctl
  if (needs.pid_text != nullptr)
    std::to_chars(needs.pid_text, needs.pid_text + kMostDigits, ::getpid());
  // With Yama's scope 1, this call lets the agent's descendants, such as py-spy, read this process, also after exec. On
  // a kernel without Yama the call fails, and is not needed.
  ::prctl(PR_SET_PTRACER, needs.agent, 0, 0, 0);
  reset_signals(*needs.ignored);
  const int input = needs.stdin_fd >= 0 ? needs.stdin_fd : ::open("/dev/null", O_RDONLY);
  if (input < 0) {
    // Without /dev, use a closed pipe, so that the rank reads an end of file.
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
  if (!apply_share(needs.command->share)) give_up(needs, false);
  if (::chdir(needs.command->working_directory.c_str()) != 0) give_up(needs);
  const char* const path = needs.command->path.c_str();
  ::execve(path, needs.argv.data(), needs.envp.data());
  if (errno == ENOEXEC && is_without_format(path)) {
    ::execve("/bin/sh", needs.shell_argv.data(), needs.envp.data());
    errno = ENOEXEC;
  }
  give_up(needs);
}

Status execution_error(const RankCommand& command, int error, bool is_bound) {
  const std::string& program = command.arguments[0];
  if (!is_bound) {
    return system_error(cat("program '", program,
                            "' cannot be bound to CPUs that its agent had "
                            "when it planned; start the job again, or leave --bind-to out"),
                        error);
  }
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

Result<RankProcess> fork_rank(const RankCommand& command, uint32_t index,
                              const std::vector<int>& ignored, int report_fd) {
  HVD_ASSIGN_OR_RETURN(Pipe out, open_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe error, open_pipe());
  Pipe input;
  if (command.has_input) {
    HVD_ASSIGN_OR_RETURN(input, open_pipe());
  }
  std::vector<std::string> shell_arguments = {"/bin/sh", command.path};
  shell_arguments.insert(shell_arguments.end(), command.arguments.begin() + 1,
                         command.arguments.end());
  std::vector<std::string> variables = environment_strings(command.environment);
  char* const pid_text = room_for_pid(variables);
  const ChildNeeds needs{.argv = pointers_to(command.arguments),
                         .shell_argv = pointers_to(shell_arguments),
                         .envp = pointers_to(variables),
                         .pid_text = pid_text,
                         .command = &command,
                         .ignored = &ignored,
                         .agent = ::getpid(),
                         .index = index,
                         .stdin_fd = input.read.get(),
                         .stdout_fd = out.write.get(),
                         .stderr_fd = error.write.get(),
                         .report_fd = report_fd};
  // vfork copies no memory: this process continues when the child has executed its program or has
  // failed.
  const pid_t pid = ::vfork();
  if (pid < 0) return system_error("cannot start a process", errno);
  if (pid == 0) {
    ::setrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
    set_process_limits(command.limits);
    become_rank(needs);
  }
  RankProcess process;
  process.pid = pid;
  if (input.write) ::fcntl(input.write.get(), F_SETFL, O_NONBLOCK);
  process.input = std::move(input.write);
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(error.read.get(), F_SETFL, O_NONBLOCK);
  process.output[0] = std::move(out.read);
  process.output[1] = std::move(error.read);
  return process;
}

}  // namespace

std::vector<Result<RankProcess>> start_ranks(std::span<const RankCommand> commands,
                                             SideBySide& threads) {
  std::vector<Result<RankProcess>> started;
  auto report = open_pipe();
  for (size_t i = 0; i < commands.size(); ++i) {
    started.push_back(report.ok()
                          ? aborted("not started, because another rank could not be started")
                          : report.status());
  }
  if (!report.ok()) return started;
  const std::vector<int> ignored = ignored_signals();
  make_room_for_descriptors(commands.size());
  std::atomic<bool> has_failed{false};
  threads.run(commands.size(), [&](size_t i) {
    if (has_failed) return;
    started[i] = fork_rank(commands[i], static_cast<uint32_t>(i), ignored, report->write.get());
    if (!started[i].ok()) has_failed = true;
  });
  report->write.reset();
  // The last copy of the other end is closed when all children have executed their programs or ended.
  Complaint complaint{};
  for (;;) {
    const ssize_t size = ::read(report->read.get(), &complaint, sizeof complaint);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof complaint) return started;
    Result<RankProcess>& of = started[complaint.index];
    ::waitpid(of->pid, nullptr, 0);
    of = execution_error(commands[complaint.index], complaint.error, complaint.is_bound);
  }
}

Result<RankProcess> start_rank(const RankCommand& command) {
  SideBySide threads;
  return std::move(start_ranks({&command, 1}, threads).front());
}

}  // namespace hvd::launcher
