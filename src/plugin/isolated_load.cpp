#include "plugin/isolated_load.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "plugin/library.h"

namespace hvd::plugin {
namespace {

constexpr char kGood = '+';

// Encodes the result of the record's probe for the pipe.
std::string opinion_of(const std::string& path) {
  const auto loaded = load(path);
  if (!loaded.ok()) return "-" + loaded.error().message();
  const Status status = probe(**loaded);
  return status.ok() ? std::string(1, kGood) : "-" + status.message();
}

// The parent reports a crash of this child: disable the program's handlers and core files.
void be_quiet() {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM}) {
    ::signal(number, SIG_DFL);
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

// Reads until the end of the stream; returns false at the deadline.
bool read_all(int fd, const Deadline& deadline, std::string* text) {
  for (;;) {
    const double left = deadline.seconds_left();
    if (left <= 0) return false;
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(left * 1000) + 1) < 0 && errno != EINTR) return false;
    if (entry.revents == 0) continue;
    char buffer[1024];
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text->append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

Status try_in_child(const std::string& path, double limit_seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return system_error("cannot fork to try a plugin", errno);
  if (child == 0) {
    be_quiet();
    const std::string opinion = opinion_of(path);
    const ssize_t written = ::write(writing.get(), opinion.data(), opinion.size());
    ::_exit(written == static_cast<ssize_t>(opinion.size()) ? 0 : 1);
  }
  writing.reset();
  std::string opinion;
  const bool ended = read_all(reading.get(), Deadline::after_seconds(limit_seconds), &opinion);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return deadline_exceeded(cat(path, " does not answer within ", limit_seconds,
                                 " seconds when it is opened and probed"));
  }
  if (WIFSIGNALED(status)) {
    return unavailable(
        cat(path, " crashes when it is opened and probed (", ::strsignal(WTERMSIG(status)), ")"));
  }
  if (opinion.empty()) return unavailable(cat(path, " ends the process when it is probed"));
  if (opinion.front() == kGood) return {};
  return unavailable(opinion.substr(1));
}

}  // namespace hvd::plugin
