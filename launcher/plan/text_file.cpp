#include "launcher/plan/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/whole_io.h"
#include "base/log/log.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxSize = 64 << 20;
constexpr int kQuietMilliseconds = 2000;

// Waits until a FIFO, pipe or terminal has bytes or has ended, and prints that it waits.
void wait_for_first_bytes(const UniqueFd& file, const std::string& path, std::string_view what) {
  pollfd readable{.fd = file.get(), .events = POLLIN, .revents = 0};
  if (::poll(&readable, 1, kQuietMilliseconds) != 0) return;
  log::warning(cat("waiting for ", what, " from ", path == "-" ? "standard input" : path,
                   ", to which no process has written yet"));
  while (::poll(&readable, 1, -1) < 0 && errno == EINTR) continue;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::string_view what) {
  const std::string cannot = path == "-" ? cat("cannot read ", what, " from standard input")
                                         : cat("cannot read ", what, " ", path);
  const UniqueFd file(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                  : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return system_error(cannot, errno);
  wait_for_first_bytes(file, path, what);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      pollfd readable{.fd = file.get(), .events = POLLIN, .revents = 0};
      ::poll(&readable, 1, -1);
      continue;
    }
    if (size < 0) return system_error(cannot, errno);
    if (size == 0) return text;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > kMaxSize) {
      return invalid_argument(cat(cannot, ": it is larger than ", kMaxSize >> 20, " MiB"));
    }
  }
}

Status create_text_file(const std::string& path, std::string_view what, std::string_view text,
                        mode_t mode) {
  const std::string context = cat("cannot write ", what, " ", printable(path));
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file && errno == EEXIST) {
    return failed_precondition(cat(context, ": the file exists; remove or rename it"));
  }
  if (!file) return system_error(context, errno);
  if (write_all(file.get(), text)) return {};
  const int error = errno;
  ::unlink(path.c_str());
  return system_error(context, error);
}

}  // namespace hvd::launcher
