#include "launcher/output/standard_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadAtOnce = 16 << 10;
static_assert(2 * kReadAtOnce <= kInputWindow);
// How often a launcher in the background looks whether it is in the foreground again.
constexpr std::chrono::milliseconds kLookAgain{200};

}  // namespace

class StandardInput::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(net::asio::any_io_executor executor, int fd, std::vector<int> ranks, Send send)
      : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 3)),
        send_(std::move(send)),
        readable_(executor),
        later_(executor) {
    for (const int rank : ranks) under_way_[rank] = 0;
    // Asio would set O_NONBLOCK on what it watches, which others share; so it watches an epoll.
    UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {}};
    // A regular file cannot be watched, and need not.
    is_watched_ = watch && fd_ && ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, fd_.get(), &event) == 0;
    if (is_watched_) readable_.assign(watch.release());
  }

  void close() {
    is_over_ = true;
    net::error_code ignored;
    readable_.close(ignored);
    later_.cancel();
  }

  void taken(int rank, size_t size) {
    const auto found = under_way_.find(rank);
    if (found == under_way_.end()) return;
    found->second -= std::min(found->second, size);
    read_next();
  }

  void read_next() {
    if (is_over_ || is_waiting_ || !has_room()) return;
    is_waiting_ = true;
    const auto self = shared_from_this();
    if (!is_watched_) {
      // As if it had become ready: the loop has other things to do as well.
      return net::asio::post(later_.get_executor(), [self] { self->read(); });
    }
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {}};
    ::epoll_ctl(readable_.native_handle(), EPOLL_CTL_MOD, fd_.get(), &event);
    readable_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                         [self](const net::error_code& error) {
                           if (error) return;
                           epoll_event event;
                           ::epoll_wait(self->readable_.native_handle(), &event, 1, 0);
                           self->read();
                         });
  }

 private:
  bool has_room() const {
    return std::all_of(under_way_.begin(), under_way_.end(),
                       [](const auto& each) { return each.second + kReadAtOnce <= kInputWindow; });
  }

  void read() {
    if (is_over_) return;
    is_waiting_ = false;
    // The kernel stops a background process that reads its terminal.
    if (::isatty(fd_.get()) == 1 && ::tcgetpgrp(fd_.get()) != ::getpgrp()) {
      is_waiting_ = true;
      later_.expires_after(kLookAgain);
      return later_.async_wait([self = shared_from_this()](const net::error_code& error) {
        if (error) return;
        self->is_waiting_ = false;
        self->read_next();
      });
    }
    // The shell may have taken the line meanwhile: a read would wait for the next one, and the loop with it.
    pollfd poll{fd_.get(), POLLIN, 0};
    if (is_watched_ && ::poll(&poll, 1, 0) == 0) return read_next();
    std::array<std::byte, kReadAtOnce> buffer;
    const ssize_t size = ::read(fd_.get(), buffer.data(), buffer.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return read_next();
    is_over_ = size <= 0;
    for (auto& [rank, bytes] : under_way_) {
      bytes += size > 0 ? static_cast<size_t>(size) : 0;
      send_(rank, ByteView(buffer).first(size > 0 ? static_cast<size_t>(size) : 0));
    }
    read_next();
  }

  UniqueFd fd_;
  Send send_;
  net::asio::posix::stream_descriptor readable_;  // the epoll that watches fd_
  net::asio::steady_timer later_;
  std::map<int, size_t> under_way_;  // bytes that a rank has not taken yet
  bool is_watched_ = false, is_waiting_ = false, is_over_ = false;
};

StandardInput::StandardInput(net::asio::any_io_executor executor, int fd, std::vector<int> ranks,
                             Send send)
    : impl_(std::make_shared<Impl>(std::move(executor), fd, std::move(ranks), std::move(send))) {}
StandardInput::~StandardInput() { impl_->close(); }
void StandardInput::start() { impl_->read_next(); }
void StandardInput::taken(int rank, size_t size) { impl_->taken(rank, size); }

}  // namespace hvd::launcher
