#include "launcher/check/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/status.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr size_t kKeptBytes = 64 * 1024;
constexpr size_t kShownBytes = 1000;

[[noreturn]] void run_child(const std::function<std::string()>& body, int error_fd, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(error_fd, STDERR_FILENO);
  const std::string why = body();
  if (!why.empty()) {
    const std::string line = why + "\n";
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) ::_exit(2);
  }
  ::_exit(why.empty() ? 0 : 1);
}

std::string last_line(const std::string& text) {
  const std::string_view trimmed = trim(text);
  const size_t newline = trimmed.rfind('\n');
  return std::string(trim(newline == std::string_view::npos ? trimmed : trimmed.substr(newline)));
}

// Appends the available bytes. Returns false at the end.
bool read_more(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t size = ::read(fd, buffer, sizeof buffer);
  if (size < 0 && errno == EINTR) return true;
  if (size <= 0) return false;
  text->append(buffer, static_cast<size_t>(size));
  if (text->size() > kKeptBytes) text->erase(0, text->size() - kKeptBytes);
  return true;
}

// Reads the child's output until the child ends: other processes may keep the pipe open afterwards. Returns false if
// the child has not ended by the deadline.
bool read_until_end(int fd, pid_t child, Deadline deadline, std::string* text) {
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  for (bool has_ended = false;;) {
    pollfd events[] = {{fd, POLLIN, 0}, {has_ended ? -1 : end.get(), POLLIN, 0}};
    const int ready = ::poll(events, 2, has_ended ? 0 : deadline.poll_timeout());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return has_ended;
    has_ended |= events[1].revents != 0;
    if (events[0].revents == 0 || read_more(fd, text)) continue;
    if (has_ended || !end) return true;
    fd = -1;
  }
}

}  // namespace

Probe::Probe(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    start_error_ = system_error("cannot make a pipe", errno).message();
    return;
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) run_child(body, ends[1], parent);
  if (pid_ < 0) start_error_ = system_error("cannot start a process", errno).message();
  if (pid_ > 0) ::setpgid(pid_, pid_);
  ::close(ends[1]);
  error_fd_ = ends[0];
}

Probe::Probe(Probe&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      error_fd_(std::exchange(other.error_fd_, -1)),
      start_error_(std::move(other.start_error_)) {}

Probe::~Probe() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (error_fd_ >= 0) ::close(error_fd_);
}

ProbeOutcome Probe::wait(Deadline deadline) {
  if (pid_ < 0) return {false, start_error_};
  std::string text;
  if (!read_until_end(error_fd_, pid_, deadline, &text)) {
    return {false, "it did not answer in time", text, true};
  }
  // WNOWAIT keeps the child as a zombie, so the kernel does not reuse its pid, also its group's id, before kill().
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFSIGNALED(status)) {
    return {false, cat("it crashed by ", signal_name(WTERMSIG(status))), text};
  }
  if (WEXITSTATUS(status) == 0) return {true, "", text};
  const std::string line = last_line(text);
  return {false,
          line.empty() ? cat("it ended with exit code ", WEXITSTATUS(status))
                       : printable(line, kShownBytes),
          text};
}

std::string become(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& environment) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execvp(command.front().c_str(), pointers_to(command).data());
  return system_error(cat("cannot run ", command.front()), errno).message();
}

}  // namespace hvd::launcher
