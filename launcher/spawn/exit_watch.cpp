#include "launcher/spawn/exit_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

Status ExitWatch::begin(pid_t pid, std::function<void()> on_exit) {
  // Nothing has reaped the process yet, so its pid cannot belong to another process.
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    pidfd_.assign(fd);
    pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [on_exit = std::move(on_exit)](const net::error_code& failed) {
                        if (!failed) on_exit();
                      });
    return {};
  }
  if (errno != ENOSYS && errno != EPERM) {
    return system_error("cannot watch a child process (pidfd_open)", errno);
  }
  net::error_code failed;
  child_signals_.add(SIGCHLD, failed);
  if (failed) return net::to_status("cannot watch a child process (SIGCHLD)", failed);
  // The process may have ended before the handler was set.
  asio::post(pidfd_.get_executor(), [this, pid, on_exit = std::move(on_exit)]() mutable {
    look(pid, std::move(on_exit));
  });
  return {};
}

void ExitWatch::look(pid_t pid, std::function<void()> on_exit) {
  if (has_ended(pid)) return on_exit();
  child_signals_.async_wait(
      [this, pid, on_exit = std::move(on_exit)](const net::error_code& failed, int) mutable {
        if (!failed) look(pid, std::move(on_exit));
      });
}

void ExitWatch::close() {
  net::error_code ignored;
  pidfd_.close(ignored);
  child_signals_.clear(ignored);
  child_signals_.cancel(ignored);
}

}  // namespace hvd::launcher
