#include "launcher/output/sink.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/own_file.h"
#include "base/files/whole_io.h"
#include "base/mutex.h"
#include "base/process/signals.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

// Writes all bytes. Returns 0 or an errno.
int written(int file, std::string_view bytes) { return write_all(file, bytes) ? 0 : errno; }

}  // namespace

struct WriterThread::Job {
  File file;
  std::string bytes;
  Step step;  // empty for a write
  std::vector<Done> done;

  int run() const { return step ? step(*file) : written(file->get(), bytes); }
};

struct WriterThread::State {
  explicit State(net::asio::any_io_executor executor) : executor(std::move(executor)) {}

  const net::asio::any_io_executor executor;
  Mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs HVD_GUARDED_BY(mutex);
  // Callbacks of the running job. ~WriterThread destroys them even while the thread is blocked, because they may refer
  // to the loop.
  std::vector<Done> running HVD_GUARDED_BY(mutex);
  bool is_over HVD_GUARDED_BY(mutex) = false;
};

WriterThread::WriterThread(net::asio::any_io_executor executor)
    : state_(std::make_shared<State>(std::move(executor))) {}

WriterThread::~WriterThread() {
  std::deque<Job> dropped;
  std::vector<Done> dropped_running;
  const MutexLock lock(state_->mutex);
  state_->is_over = true;
  dropped.swap(state_->jobs);
  dropped_running.swap(state_->running);
  state_->changed.notify_one();
}

void WriterThread::write(const File& file, std::string_view bytes, Done done) {
  add({.file = file, .bytes = std::string(bytes), .step = {}, .done = {std::move(done)}});
}

void WriterThread::open(const File& file, const std::string& path, int flags, Done done) {
  const auto step = [path, flags](UniqueFd& target) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder.parent_path(), error);
    if (error) return error.value();
    const auto own = open_own_folder(folder);
    if (!own.ok()) return errno;
    // For a FIFO without a reader, open() fails and does not block the other files.
    auto file = open_own_file_in(*own, std::filesystem::path(path).filename(), flags, path);
    if (!file.ok()) return errno;
    target = *std::move(file);
    return 0;
  };
  add({.file = file, .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::replace(const std::string& path, std::string_view bytes, Done done) {
  const auto step = [path, bytes = std::string(bytes)](UniqueFd& file) {
    const std::string next = cat(path, ".", ::getpid(), ".tmp");
    ::unlink(next.c_str());  // left by an earlier process with this pid
    file.reset(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) return errno;
    int error = written(file.get(), bytes);
    if (::close(file.release()) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(next.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) ::unlink(next.c_str());
    return error;
  };
  add({.file = std::make_shared<UniqueFd>(), .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::remove(const std::string& path, Done done) {
  const auto step = [path](UniqueFd&) { return ::unlink(path.c_str()) == 0 ? 0 : errno; };
  add({.file = std::make_shared<UniqueFd>(), .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::close(const File& file, Done done) {
  const auto step = [](UniqueFd& target) { return ::close(target.release()) == 0 ? 0 : errno; };
  add({.file = file, .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::add(Job job) {
  if (!is_started_) start();
  if (!is_started_) {
    const int error = job.run();
    net::asio::post(state_->executor, [done = std::move(job.done[0]), error] { done(error); });
    return;
  }
  const MutexLock lock(state_->mutex);
  Job* const last = state_->jobs.empty() ? nullptr : &state_->jobs.back();
  if (last != nullptr && last->file == job.file && !last->step && !job.step) {
    last->bytes += job.bytes;
    last->done.push_back(std::move(job.done[0]));
    return;
  }
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_one();
}

void WriterThread::start() {
  const AllSignalsBlocked blocked;  // signals go to the loop's thread
  try {
    // Detached: the launcher does not wait for an unresponsive file system.
    std::thread([state = state_] { work(state); }).detach();
    is_started_ = true;
  } catch (const std::system_error&) {
    // If no thread can start, the loop itself writes.
  }
}

void WriterThread::work(const std::shared_ptr<State>& state) {
  MutexLock lock(state->mutex);
  for (;;) {
    while (state->jobs.empty() && !state->is_over) state->changed.wait(lock.native());
    if (state->is_over) return;
    Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->running = std::move(job.done);
    lock.unlock();
    const int error = job.run();
    job.file.reset();  // may close the file
    lock.lock();
    if (state->is_over) return;
    net::asio::post(state->executor, [done = std::exchange(state->running, {}), error] {
      for (const Done& each : done) each(error);
    });
  }
}

namespace {

// The time after which a write to a file is considered stuck.
constexpr std::chrono::seconds kStuckAfter{1};

// The descriptor and the way to write it without blocking.
struct SinkTarget {
  std::shared_ptr<UniqueFd> fd = std::make_shared<UniqueFd>();  // shared with a write of the thread
  bool is_socket = false;
  bool is_file = false;
  int flags_to_restore = -1;  // flags of the open file, shared with other processes; -1: unchanged
};

SinkTarget open_target(int fd) {
  SinkTarget target;
  struct stat status {};
  if (::fstat(fd, &status) != 0) return target;
  if (S_ISFIFO(status.st_mode) || (S_ISCHR(status.st_mode) && ::isatty(fd) == 1)) {
    // Open the file again: O_NONBLOCK then does not affect other processes.
    const std::string path = cat("/proc/self/fd/", fd);
    target.fd->reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (*target.fd) return target;
    target.fd->reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!*target.fd) return target;
    target.flags_to_restore = ::fcntl(fd, F_GETFL);
    if (target.flags_to_restore >= 0) ::fcntl(fd, F_SETFL, target.flags_to_restore | O_NONBLOCK);
    return target;
  }
  target.is_socket = S_ISSOCK(status.st_mode);
  target.fd->reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  target.is_file = S_ISREG(status.st_mode) && *target.fd;
  return target;
}

}  // namespace

class Sink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(net::asio::any_io_executor executor, int fd, WriterThread& thread)
      : target_(open_target(fd)),
        fd_(*target_.fd ? target_.fd->get() : fd),
        thread_(thread),
        writable_(executor),
        drained_(executor) {
    drained_.expires_at(Clock::time_point::max());
    if (target_.is_file) return;
    // Asio would set O_NONBLOCK on the descriptor: let it watch an epoll descriptor instead.
    UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLOUT | EPOLLONESHOT, .data = {}};
    can_wait_ = watch && *target_.fd &&
                ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, target_.fd->get(), &event) == 0;
    if (can_wait_) writable_.assign(watch.release());
  }

  explicit Impl(net::asio::any_io_executor executor, WriterThread& thread)
      : fd_(-1), thread_(thread), writable_(executor), drained_(executor) {
    drained_.expires_at(Clock::time_point::max());
    target_.is_file = true;
  }

  ~Impl() { restore_flags(); }

  void open(const std::string& path, int flags) {
    thread_.open(target_.fd, path, flags, [self = shared_from_this()](int error) {
      if (!self->is_closed_ && !self->is_discarded_) self->on_written(0, error);
    });
  }

  void close() {
    is_closed_ = true;
    error_code ignored;
    writable_.close(ignored);
    drained_.cancel();
    on_broken_ = nullptr;
  }

  void write(std::string_view bytes, std::function<void()> written) {
    if (is_empty()) progress_ = Clock::now();
    total_queued_ += bytes.size();
    if (written) marks_.push_back({total_queued_, std::move(written)});
    if (target_.is_file) return write_to_file(bytes);
    queued_.append(bytes);
    if (!waiting_) flush();
  }

  void end() {
    is_ended_ = true;
    finish();
  }

  net::Task<void> drain() {
    const auto self = shared_from_this();
    while (!is_empty()) co_await drained_.async_wait(net::use_tuple);
  }

  void discard() {
    broken_ = true;
    is_discarded_ = true;
    waiting_ = false;
    is_closing_ = false;
    // The thread may still write the queued data: do not wait for it.
    if (target_.is_file) total_written_ = total_queued_;
    settle();
    flush();
  }

  bool is_empty() const { return is_written() && !is_closing_; }
  bool is_stuck() const {
    return !is_empty() && (!target_.is_file || Clock::now() - progress_ > kStuckAfter);
  }
  void set_on_broken(std::function<void(int)> callback) { on_broken_ = std::move(callback); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    uint64_t end;
    std::function<void()> written;
  };

  void flush() {
    const auto self = shared_from_this();
    if (flushing_) return;  // called from a callback; the loop below flushes the rest
    flushing_ = true;
    while (!is_written() && !waiting_) {
      if (position_ == current_.size()) {
        current_.clear();
        current_.swap(queued_);
        position_ = 0;
      }
      write_some();
      settle();
    }
    flushing_ = false;
    finish();
  }

  bool is_written() const { return total_written_ == total_queued_; }

  void finish() {
    if (is_written() && std::exchange(is_ended_, false) && !is_discarded_) close_target();
    if (is_empty()) drained_.cancel();
  }

  // Passes the bytes on at once: lines of two sinks with one file then keep their order.
  void write_to_file(std::string_view bytes) {
    if (broken_) return on_written(bytes.size(), 0);
    thread_.write(target_.fd, bytes, [self = shared_from_this(), size = bytes.size()](int error) {
      if (!self->is_closed_ && !self->is_discarded_) self->on_written(size, error);
    });
  }

  void on_written(size_t size, int error) {
    progress_ = Clock::now();
    total_written_ += size;
    if (error != 0) break_with(error);
    settle();
    finish();
  }

  void restore_flags() {
    if (target_.flags_to_restore < 0) return;
    ::fcntl(target_.fd->get(), F_SETFL, std::exchange(target_.flags_to_restore, -1));
  }

  // A file system may write, and report that it is full, only at close.
  void close_target() {
    if (!target_.is_file) {
      error_code ignored;
      writable_.close(ignored);
      restore_flags();
      return target_.fd->reset();
    }
    is_closing_ = true;
    progress_ = Clock::now();
    thread_.close(std::exchange(target_.fd, std::make_shared<UniqueFd>()),
                  [self = shared_from_this()](int error) {
                    if (!std::exchange(self->is_closing_, false) || self->is_closed_) return;
                    self->on_written(0, error);
                  });
  }

  void write_some() {
    const char* data = current_.data() + position_;
    const size_t size = current_.size() - position_;
    if (broken_) return advance(size);
    const ssize_t written = target_.is_socket ? ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                              : ::write(fd_, data, size);
    if (written >= 0) return advance(static_cast<size_t>(written));
    // Let the loop handle the signal first. In a background job under `stty tostop`, each write raises SIGTTOU until
    // the signal has stopped the job.
    if ((errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) && can_wait_) return wait();
    if (errno != EINTR) break_with(errno);
  }

  void advance(size_t size) {
    position_ += size;
    total_written_ += size;
  }

  void settle() {
    while (!marks_.empty() && marks_.front().end <= total_written_) {
      const auto written = std::move(marks_.front().written);
      marks_.pop_front();
      written();
    }
  }

  void wait() {
    waiting_ = true;
    epoll_event event{.events = EPOLLOUT | EPOLLONESHOT, .data = {}};
    ::epoll_ctl(writable_.native_handle(), EPOLL_CTL_MOD, target_.fd->get(), &event);
    writable_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const error_code& error) {
                           if (error) return;
                           self->waiting_ = false;
                           // takes the event, so that the next wait begins without it
                           epoll_event taken;
                           ::epoll_wait(self->writable_.native_handle(), &taken, 1, 0);
                           self->flush();
                         });
  }

  void break_with(int error_number) {
    broken_ = true;
    if (on_broken_) std::exchange(on_broken_, nullptr)(error_number);
  }

  using error_code = net::error_code;

  SinkTarget target_;
  const int fd_;  // the caller's descriptor, for blocking writes if no descriptor was free
  WriterThread& thread_;
  bool can_wait_ = false;
  net::asio::posix::stream_descriptor writable_;  // the epoll that watches target_
  net::asio::steady_timer drained_;
  std::string current_, queued_;
  size_t position_ = 0;  // number of written bytes of current_
  uint64_t total_queued_ = 0, total_written_ = 0;
  std::deque<Mark> marks_;
  bool waiting_ = false, flushing_ = false, broken_ = false;
  bool is_ended_ = false, is_closing_ = false, is_closed_ = false, is_discarded_ = false;
  Clock::time_point progress_;  // when a file last accepted bytes
  std::function<void(int)> on_broken_;
};

Sink::Sink(net::asio::any_io_executor executor, int fd, WriterThread& thread)
    : impl_(std::make_shared<Impl>(std::move(executor), fd, thread)) {}
Sink::Sink(net::asio::any_io_executor executor, const std::string& path, int flags,
           WriterThread& thread)
    : impl_(std::make_shared<Impl>(std::move(executor), thread)) {
  impl_->open(path, flags);
}
Sink::~Sink() { impl_->close(); }

void Sink::write(std::string_view bytes, std::function<void()> written) {
  impl_->write(bytes, std::move(written));
}
void Sink::end() { impl_->end(); }
net::Task<void> Sink::drain() { return impl_->drain(); }
void Sink::discard() { impl_->discard(); }
bool Sink::is_stalled() const { return !impl_->is_empty(); }
bool Sink::is_stuck() const { return impl_->is_stuck(); }
void Sink::on_broken(std::function<void(int)> callback) {
  impl_->set_on_broken(std::move(callback));
}

}  // namespace hvd::launcher
