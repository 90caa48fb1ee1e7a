#include "launcher/detach/spool_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "launcher/detach/spool_folder.h"

namespace hvd::launcher {
namespace {

Status no_spool(const std::string& pid) {
  return not_found(cat("there is no detached job of yours with pid ", printable(pid),
                       "; horovodrun ps lists the jobs that run"));
}

}  // namespace

Result<std::unique_ptr<SpoolReader>> SpoolReader::open(const std::string& parent,
                                                       const std::string& pid) {
  const auto folder = open_spool_folder(parent, false);
  if (!folder.ok())
    return folder.status().code() == Code::kNotFound ? no_spool(pid) : folder.status();
  std::unique_ptr<SpoolReader> reader(new SpoolReader(parent, pid));
  reader->folder_ = open_folder_in(*folder, pid);
  if (!reader->folder_) return no_spool(pid);
  HVD_RETURN_IF_ERROR(reader->begin());
  return reader;
}

Status SpoolReader::begin() {
  // From here on no process removes it.
  while (::flock(folder_.get(), LOCK_SH) != 0) {
    if (errno != EINTR) return system_error(cat("cannot lock the spool of pid ", pid_), errno);
  }
  state_.reset(::openat(folder_.get(), kStateFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!state_) return no_spool(pid_);
  changes_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const std::string path = cat("/proc/self/fd/", folder_.get());
  if (!changes_ || ::inotify_add_watch(changes_.get(), path.c_str(), IN_MODIFY | IN_CREATE) < 0) {
    return unavailable(cat("cannot watch the spool of pid ", pid_,
                           " (inotify: ", std::strerror(errno),
                           "); see sysctl fs.inotify.max_user_instances and max_user_watches"));
  }
  if (!is_spool_in_use(folder_)) return {};
  const auto pid = static_cast<pid_t>(parse_int(pid_).value_or(0));
  launcher_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int error = errno;
  // Another process may have the pid of a launcher that has just ended.
  if (!is_spool_in_use(folder_))
    launcher_.reset();
  else if (!launcher_)
    return system_error(cat("cannot watch the launcher with pid ", pid_), error);
  return {};
}

bool SpoolReader::is_running() const {
  pollfd ended{.fd = launcher_.get(), .events = POLLIN, .revents = 0};
  return launcher_ && ::poll(&ended, 1, 0) == 0;
}

std::optional<int> SpoolReader::exit_code() const {
  std::array<char, 32> text;
  const ssize_t size = ::pread(state_.get(), text.data(), text.size(), 0);
  const std::string_view state(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  constexpr std::string_view kEnded = "ended ";
  if (!state.starts_with(kEnded)) return {};
  const auto code = parse_int(trim(state.substr(kEnded.size())));
  if (!code || *code < 0 || *code > 255) return {};
  return static_cast<int>(*code);
}

void SpoolReader::wait(std::span<const int> others) {
  std::vector<pollfd> watched = {{.fd = changes_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = launcher_.get(), .events = POLLIN, .revents = 0}};
  for (const int fd : others) watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  ::poll(watched.data(), watched.size(), -1);
  std::array<char, 4096> events;
  while (::read(changes_.get(), events.data(), events.size()) > 0) continue;
}

void SpoolReader::remove() { remove_spool(parent_, pid_, folder_); }

}  // namespace hvd::launcher
