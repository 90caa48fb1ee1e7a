#include "launcher/state/detached_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/proc_file.h"
#include "base/process/signals.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/output/report.h"
#include "launcher/state/job_record.h"
#include "launcher/state/log_files.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

// One-byte messages from the launcher to the process in the terminal.
constexpr char kIsRecorded = 's', kIsRunning = 'r';
// Milliseconds between two reads of a log, only while a job starts.
constexpr int kLookMilliseconds = 50;

void send_word(const UniqueFd& socket, char word) {
  [[maybe_unused]] const ssize_t size = ::send(socket.get(), &word, 1, MSG_NOSIGNAL);
}

// Returns whether this message has arrived. Returns false if the peer has closed the socket.
bool has_received(const UniqueFd& socket, char word, int flags) {
  char byte = 0;
  ssize_t size = 0;
  do {
    size = ::recv(socket.get(), &byte, 1, flags);
  } while (size < 0 && errno == EINTR);
  return size == 1 && byte == word;
}

// Returns the descriptors that horovodrun has inherited from its caller. Call before libraries such as libssh open
// descriptors without close-on-exec.
std::vector<int> inherited_descriptors() {
  std::vector<int> inherited;
  for (const std::string& name :
       entries_of(UniqueFd(::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)))) {
    const int fd = static_cast<int>(parse_int(name).value_or(-1));
    const int flags = ::fcntl(fd, F_GETFD);
    if (fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0) inherited.push_back(fd);
  }
  return inherited;
}

// Runs the launcher in its own session: signals from the terminal then reach only the other process.
int run_behind(const UniqueFd& socket, const Launch& launch) {
  std::vector<int> inherited = inherited_descriptors();
  const auto on_running = [&] {
    ::prctl(PR_SET_PDEATHSIG, 0);
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (null) ::dup2(null.get(), STDIN_FILENO);
    // Close the caller's descriptors, because an open pipe would keep its reader waiting.
    for (const int fd : std::exchange(inherited, {})) ::close(fd);
    send_word(socket, kIsRunning);
  };
  return launch(
      {.on_recorded = [&socket] { send_word(socket, kIsRecorded); }, .on_running = on_running});
}

int code_of(pid_t launcher) {
  int status = 0;
  while (::waitpid(launcher, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  print_message(cat("the launcher, pid ", launcher, ", was ended by ",
                    signal_name(WTERMSIG(status)), "; agents end their ranks by themselves"));
  return kExitSignal + WTERMSIG(status);
}

// Forwards signals to the launcher, and SIGTERM for SIGHUP, which a launcher without a terminal ignores.
void pass_on_signals(const UniqueFd& signals, pid_t launcher) {
  signalfd_siginfo info{};
  while (::read(signals.get(), &info, sizeof info) == sizeof info) {
    const auto number = static_cast<int>(info.ssi_signo);
    ::kill(launcher, number == SIGHUP ? SIGTERM : number);
  }
}

// Does not reap the process.
bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

// Waits up to a second until the record is not "starting": the log then contains all earlier output.
void await_running(const UniqueFd& folder) {
  const auto deadline = Deadline::after(std::chrono::seconds(1));
  for (auto record = read_record(folder); record.ok() && record->state == "starting";
       record = read_record(folder)) {
    if (deadline.passed()) return;
    ::poll(nullptr, 0, 1);
  }
}

// Runs the process in the terminal. `local`: the directory of detached jobs.
int run_in_front(const std::string& local, const UniqueFd& socket, const sigset_t& watched,
                 pid_t launcher, const std::optional<EndingScript>& script) {
  // The launcher has printed the reason.
  if (!has_received(socket, kIsRecorded, 0)) return code_of(launcher);
  const UniqueFd signals(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  ProcessIdentity identity = ProcessIdentity::own();
  identity.pid = launcher;
  identity.start = start_of(launcher);
  const auto folder = open_job_folder(local, identity);
  if (!folder.ok()) {
    ::kill(launcher, SIGTERM);
    code_of(launcher);
    return refuse(folder.status());
  }
  LogReader log(*folder);
  bool is_shown = true;
  const auto show_log = [&] {
    while (const auto lines = log.next()) is_shown = is_shown && show(*lines) == 0;
  };
  for (bool ends = false; !ends;) {
    ends = has_ended(launcher);
    if (has_received(socket, kIsRunning, MSG_DONTWAIT)) {
      await_running(*folder);
      show_log();
      const std::string place = script
                                    ? cat("until the end of ", script->name,
                                          ", which may wait for it by horovodrun wait ", launcher)
                                    : "in the background";
      print_message(cat("all ranks run, and the job goes on ", place, "; horovodrun attach ",
                        launcher, " shows its output and returns its exit code, kill ", launcher,
                        " ends it"));
      return 0;
    }
    show_log();
    std::array<pollfd, 2> watched_files{};
    watched_files[0] = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    watched_files[1] = {.fd = signals.get(), .events = POLLIN, .revents = 0};
    if (!ends) ::poll(watched_files.data(), watched_files.size(), kLookMilliseconds);
    pass_on_signals(signals, launcher);
  }
  return code_of(launcher);
}

}  // namespace

bool has_ended(const EndingScript& script) { return start_of(script.pid) != script.start; }

std::optional<EndingScript> find_ending_script() {
  constexpr std::pair<std::string_view, const char*> kManagers[] = {
      {"slurmstepd", "the script of Slurm"},
      {"pbs_mom", "the script of PBS"},
      {"res", "the script of LSF"},
      {"sge_shepherd", "the script of Grid Engine"},
      {"oarexec", "the script of OAR"}};
  int64_t below = ::getpid();
  int64_t pid = ::getppid();
  for (; pid > 1; below = std::exchange(pid, parent_of(pid))) {
    const std::string name(trim(read_proc_file(cat("/proc/", pid, "/comm"))));
    for (const auto& [manager, script] : kManagers) {
      if (name == manager) return EndingScript{script, below, start_of(below)};
    }
  }
  // The first process of a container is an ancestor of all its processes except a shell of `kubectl exec` or `docker
  // exec`.
  const bool is_container = environment_variable("KUBERNETES_SERVICE_HOST").has_value() ||
                            ::access("/.dockerenv", F_OK) == 0 ||
                            ::access("/run/.containerenv", F_OK) == 0;
  if (pid != 1 || !is_container) return {};
  return EndingScript{"the command of this container", pid, start_of(pid)};
}

int run_detached(const LaunchSettings& settings, const std::optional<EndingScript>& script,
                 const Launch& launch) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return refuse(system_error("cannot make a socket pair", errno));
  }
  UniqueFd front(pair[0]), behind(pair[1]);
  sigset_t watched, before;
  ::sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  std::signal(SIGPIPE, SIG_IGN);
  const pid_t self = ::getpid();
  const pid_t launcher = ::fork();
  if (launcher < 0) return refuse(system_error("cannot start a process", errno));
  if (launcher > 0) {
    behind.reset();
    return run_in_front(local_state_path(settings.output.spool_dir), front, watched, launcher,
                        script);
  }
  front.reset();
  ::setsid();
  std::signal(SIGHUP, SIG_IGN);
  // Until all ranks run, the end of the process in the terminal also ends the launcher.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (::getppid() != self) return kExitSignal + SIGTERM;
  return run_behind(behind, launch);
}

}  // namespace hvd::launcher
