#include "launcher/detach/detached_run.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "base/process/signals.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/detach/output_recorder.h"
#include "launcher/detach/spool_folder.h"
#include "launcher/detach/spool_reader.h"
#include "launcher/output/report.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

// Messages of the launcher to the process in the terminal, a byte each.
constexpr char kHasSpool = 's', kIsRunning = 'r';

void send_word(const UniqueFd& socket, char word) {
  [[maybe_unused]] const ssize_t size = ::send(socket.get(), &word, 1, MSG_NOSIGNAL);
}

// False when nothing came, or the far end is gone.
bool has_received(const UniqueFd& socket, char word, int flags) {
  char byte = 0;
  ssize_t size = 0;
  do {
    size = ::recv(socket.get(), &byte, 1, flags);
  } while (size < 0 && errno == EINTR);
  return size == 1 && byte == word;
}

// The descriptors that the caller of horovodrun has passed on. Call before the launcher opens some that an exec would not
// close, as libssh does.
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

// The launcher, in a session of its own: a signal of the terminal reaches only the other process.
int run_behind(const std::string& parent, const UniqueFd& socket, const Launch& launch) {
  std::vector<int> inherited = inherited_descriptors();
  remove_old_spools(parent);
  auto spool = Spool::make(parent);
  if (!spool.ok()) return refuse(spool.status());
  auto recorder =
      OutputRecorder::start(*std::move(spool), [&socket] { send_word(socket, kIsRunning); });
  if (!recorder.ok()) return refuse(recorder.status());
  send_word(socket, kHasSpool);
  const int code = launch([&] {
    ::prctl(PR_SET_PDEATHSIG, 0);
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (null) ::dup2(null.get(), STDIN_FILENO);
    // A pipe of the caller would keep its reader waiting.
    for (const int fd : std::exchange(inherited, {})) ::close(fd);
    (*recorder)->flush();
  });
  (*recorder)->end(code);
  return code;
}

int code_of(pid_t launcher) {
  int status = 0;
  while (::waitpid(launcher, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  print_message(cat("the launcher, pid ", launcher, ", was ended by ",
                    signal_name(WTERMSIG(status)), "; agents end their ranks by themselves"));
  return kExitSignal + WTERMSIG(status);
}

// A launcher whose terminal is gone ignores SIGHUP, hence SIGTERM ends the start.
void pass_on_signals(const UniqueFd& signals, pid_t launcher) {
  signalfd_siginfo info{};
  while (::read(signals.get(), &info, sizeof info) == sizeof info) {
    const auto number = static_cast<int>(info.ssi_signo);
    ::kill(launcher, number == SIGHUP ? SIGTERM : number);
  }
}

// The process in the terminal.
int run_in_front(const std::string& parent, const UniqueFd& socket, const sigset_t& watched,
                 pid_t launcher, const std::optional<EndingScript>& script) {
  const auto remove = [&] {
    const auto all = open_spool_folder(parent, false);
    if (!all.ok()) return;
    const std::string name = cat(launcher);
    if (const UniqueFd spool = open_folder_in(*all, name)) remove_spool(parent, name, spool);
  };
  if (!has_received(socket, kHasSpool, 0)) {
    const int code = code_of(launcher);
    remove();
    return code;
  }
  const UniqueFd signals(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  const auto reader = SpoolReader::open(parent, cat(launcher));
  if (!reader.ok()) {
    ::kill(launcher, SIGTERM);
    code_of(launcher);
    remove();
    return refuse(reader.status());
  }
  const std::string place = script ? cat("until the end of ", script->name,
                                         ", which may wait for it by horovodrun wait ", launcher)
                                   : "in the background";
  bool is_shown = true;
  for (;;) {
    const bool has_ended = !(*reader)->is_running();
    const bool is_running = has_received(socket, kIsRunning, MSG_DONTWAIT);
    while (const auto chunk = (*reader)->next()) is_shown = is_shown && show(*chunk) == 0;
    if (is_running) {
      print_message(cat("all ranks run, and the job goes on ", place, "; horovodrun attach ",
                        launcher, " shows its output and returns its exit code, kill ", launcher,
                        " ends it"));
      return 0;
    }
    if (has_ended) break;
    (*reader)->wait(std::array{socket.get(), signals.get()});
    pass_on_signals(signals, launcher);
  }
  const int code = code_of(launcher);
  // The sentence about a limit is lost with the process, whose output a thread of its own records.
  if (!(*reader)->exit_code() && code < kExitSignal) {
    print_message(
        cat("the launcher, pid ", launcher,
            ", got no memory, descriptor or thread from the system; see ulimit -v, -n and -u"));
  }
  (*reader)->remove();
  return code;
}

}  // namespace

int run_detached(const LaunchSettings& settings, const std::optional<EndingScript>& script,
                 const Launch& launch) {
  const std::string parent = settings.output.spool_dir;
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
    return run_in_front(parent, front, watched, launcher, script);
  }
  front.reset();
  ::setsid();
  std::signal(SIGHUP, SIG_IGN);
  // Until all ranks run, the launcher ends with the process in the terminal.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (::getppid() != self) return kExitSignal + SIGTERM;
  return run_behind(parent, behind, launch);
}

}  // namespace hvd::launcher
