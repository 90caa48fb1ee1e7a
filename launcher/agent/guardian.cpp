#include "launcher/agent/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "launcher/agent/host/process_tree.h"

namespace hvd::launcher {

namespace {

// Seconds that the guardian waits for the end of killed processes. A process that is blocked in the
// kernel or belongs to another user may remain.
constexpr int kWaitSeconds = 10;

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, number);
  }
  return set;
}

// Reaps all ended processes. Returns true if the agent was one of them.
bool reap(pid_t agent, int& agent_status) {
  bool is_agent_gone = false;
  int status = 0;
  for (;;) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return is_agent_gone;
    if (pid == agent) {
      agent_status = status;
      is_agent_gone = true;
    }
  }
}

// Kills in a loop: when a process ends, its children may become children of this process, and SIGCHLD wakes the loop.
void kill_everything(const sigset_t& signals) {
  timespec end{};
  ::clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += kWaitSeconds;
  int ignored = 0;
  for (;;) {
    reap(-1, ignored);
    if (is_childless()) return;
    signal_descendants({SIGKILL});
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec >= end.tv_sec) return;
    const timespec wait{.tv_sec = 1, .tv_nsec = 0};
    ::sigtimedwait(&signals, nullptr, &wait);
  }
}

// The process title that `ps` prints and `pkill` matches: the process name, and for -f the command line.
class Title {
 public:
  explicit Title(char** arguments) : area_(arguments[0]) {
    ::prctl(PR_GET_NAME, name_);
    // The kernel has placed the arguments in one contiguous area.
    const char* end = area_;
    for (; *arguments == end; ++arguments) end += std::strlen(end) + 1;
    arguments_.assign(area_, static_cast<size_t>(end - area_));
  }
  void change(const char* title) const {
    ::prctl(PR_SET_NAME, title);
    const size_t size = std::min(std::strlen(title), arguments_.size() - 1);
    std::memset(area_, 0, arguments_.size());
    std::memcpy(area_, title, size);
  }
  void restore() const {
    ::prctl(PR_SET_NAME, name_);
    std::memcpy(area_, arguments_.data(), arguments_.size());
  }

 private:
  char* area_;
  std::string arguments_;
  char name_[16] = {};
};

timespec turn_of(const Watchdog& watchdog) {
  const double seconds = watchdog.turn_seconds();
  const auto whole = static_cast<time_t>(seconds);
  return {.tv_sec = whole,
          .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

int guard(pid_t agent, const sigset_t& signals, Watchdog& watchdog) {
  // Close the guardian's copies of the agent's link. With open copies, the launcher could not see the end of the
  // link.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::close(null);
  }
  int status = 0;
  for (;;) {
    siginfo_t info{};
    const timespec turn = turn_of(watchdog);
    const int number = ::sigtimedwait(&signals, &info, &turn);
    if (number == SIGCHLD) {
      if (reap(agent, status)) break;
    } else if (number < 0 && errno == EAGAIN && watchdog.is_hung_after_turn()) {
      std::fprintf(stderr,
                   "horovod-agent: the agent hangs or is stopped, so its ranks are killed\n");
      status = SIGKILL;  // a status in the format of wait(2)
      break;
    } else if (number > 0) {
      ::sigqueue(agent, passed_on(number), {.sival_int = number});
    }
  }
  kill_everything(signals);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int passed_on(int number) {
  return number == SIGUSR1 || number == SIGUSR2 ? SIGRTMIN + 1 : SIGRTMIN;
}

sigset_t agent_signals() {
  sigset_t set = waited_signals();
  sigaddset(&set, passed_on(SIGTERM));
  sigaddset(&set, passed_on(SIGUSR1));
  return set;
}

int run_guarded(char** arguments, const std::function<int(Watchdog&)>& agent,
                const std::vector<std::string>& folders) {
  become_subreaper();
  // Ctrl-Z in a terminal stops the launcher, but the processes that it started must continue.
  for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE}) ::signal(number, SIG_IGN);
  // Schedulers send these signals to every process of a job, but only ranks may use them. The agent blocks the
  // signals that it waits for, so it still receives them.
  for (const int number : {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGIO,
                           SIGPWR, passed_on(SIGUSR1)}) {
    ::signal(number, SIG_IGN);
  }
  const sigset_t signals = waited_signals();
  const sigset_t blocked = agent_signals();
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  // `pkill -f horovod-agent` must match only the agent, even before the fork.
  const Title title(arguments);
  title.change("hvd-watchdog");
  const pid_t guardian = ::getpid();
  Watchdog watchdog;
  const pid_t child = ::fork();
  if (child < 0) {
    std::fprintf(stderr, "horovod-agent: cannot start a process: %s\n", std::strerror(errno));
    return 1;
  }
  if (child > 0) {
    const int status = guard(child, signals, watchdog);
    std::error_code error;
    for (const std::string& folder : folders) std::filesystem::remove_all(folder, error);
    return status;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != guardian) return 1;
  // The session may be that of a terminal. Leave it, so that only the launcher handles
  // Ctrl-C.
  ::setsid();
  title.restore();
  const int status = agent(watchdog);
  // A thread that still connects to the launcher ends with the process. exit() would free locks of the TLS library
  // that the thread uses.
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace hvd::launcher
