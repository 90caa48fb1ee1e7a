#include "launcher/detach/spool_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/detach/spool_folder.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"

namespace hvd::launcher {
namespace {

// A record of a spool is smaller.
constexpr size_t kMaxRecord = 1 << 20;
constexpr size_t kPieceOfSpool = 256 << 10;

Status no_spool(const std::string& pid) {
  return not_found(cat("there is no detached job of yours with pid ", printable(pid),
                       "; horovodrun ps lists the jobs that run"));
}

}  // namespace

Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes) {
  HVD_ASSIGN_OR_RETURN(auto message, take_record(bytes));
  if (!message && bytes.size() > kMaxRecord) return invalid_argument("a record is too large");
  if (!message) return std::optional<OutputChunk>();
  OutputChunk* const chunk = std::get_if<OutputChunk>(&*message);
  if (chunk == nullptr) return invalid_argument("a record holds no lines");
  return std::optional<OutputChunk>(std::move(*chunk));
}

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

std::optional<OutputChunk> SpoolReader::next() {
  for (;;) {
    if (std::exchange(has_gap_, false)) {
      return OutputChunk{
          .is_error = 1,
          .bytes = line_of("older output is missing here: the spool had no room for it")};
    }
    std::string_view rest = std::string_view(bytes_).substr(position_);
    const size_t before = rest.size();
    auto chunk = take_lines(rest);
    position_ += before - rest.size();
    if (chunk.ok() && *chunk) return std::move(**chunk);
    if (!chunk.ok()) {
      is_damaged_ = true;
      bytes_.clear();
      position_ = 0;
    }
    if (!read_more() && !go_to_next_file()) return {};
  }
}

bool SpoolReader::read_more() {
  if (!file_ || is_damaged_) return false;
  bytes_.erase(0, std::exchange(position_, 0));
  const size_t held = bytes_.size();
  bytes_.resize(held + kPieceOfSpool);
  ssize_t size = 0;
  do {
    size = ::read(file_.get(), bytes_.data() + held, kPieceOfSpool);
  } while (size < 0 && errno == EINTR);
  bytes_.resize(held + (size > 0 ? static_cast<size_t>(size) : 0));
  return size > 0;
}

bool SpoolReader::go_to_next_file() {
  int64_t next = -1;
  for (const std::string& name : entries_of(folder_)) {
    const auto number = parse_int(name);
    if (number && *number > number_ && (next < 0 || *number < next)) next = *number;
  }
  if (next < 0) return false;
  // The file is complete now that another one exists.
  if (read_more()) return true;
  has_gap_ = number_ >= 0 && next != number_ + 1;
  begins_late_ |= number_ < 0 && next != 0;
  number_ = next;
  bytes_.clear();
  position_ = 0;
  is_damaged_ = false;
  file_.reset(
      ::openat(folder_.get(), cat(next).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return true;
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
