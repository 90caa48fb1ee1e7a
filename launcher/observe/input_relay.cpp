// Forwards the standard input of the launcher to the ranks of --stdin (by default rank 0) once all ranks run. Credit
// bounds the data in flight for slow ranks. Never reads from a terminal in the background.

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "base/unique_fd.h"
#include "launcher/observe/parts.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadAtOnce = 16 << 10;
static_assert(2 * kReadAtOnce <= kInputWindow);
// The interval at which a launcher in the background checks whether it is in the foreground again.
constexpr std::chrono::milliseconds kLookAgain{200};

class InputRelay : public JobPart {
 public:
  explicit InputRelay(PartLaunch& launch)
      : launch_(launch), readable_(launch.executor()), later_(launch.executor()) {}

  void on(const JobEvent& event) override;
  net::Task<void> end() override;

 private:
  void begin();
  bool has_room() const;
  void read_next();
  void read();
  void send(ByteView bytes);

  PartLaunch& launch_;
  UniqueFd input_;
  net::asio::posix::stream_descriptor readable_;  // an epoll descriptor that watches input_
  net::asio::steady_timer later_;
  std::map<int, size_t> under_way_;  // key: rank; value: bytes that the rank has not yet taken
  bool is_watched_ = false, is_waiting_ = false, is_at_end_ = false;
};

void InputRelay::on(const JobEvent& event) {
  if (std::holds_alternative<AllStarted>(event)) begin();
  if (const auto* const gone = std::get_if<HostGone>(&event)) {
    // Do not wait for the ranks of this host: the input of all other ranks would wait, too.
    std::erase_if(under_way_, [&](const auto& each) {
      return &launch_.hosts().rank(each.first).host() == &gone->host;
    });
    if (!under_way_.empty()) read_next();
  }
  const auto* const taken = std::get_if<InputTaken>(&event);
  const auto found = taken != nullptr ? under_way_.find(taken->rank) : under_way_.end();
  if (found == under_way_.end()) return;
  found->second -= std::min<size_t>(found->second, taken->size);
  read_next();
}

net::Task<void> InputRelay::end() {
  is_over_ = true;
  net::error_code ignored;
  readable_.close(ignored);
  later_.cancel();
  co_return;
}

void InputRelay::begin() {
  for (const int rank : input_readers(launch_.settings(), launch_.hosts().size())) {
    // A host that an elastic job has added meanwhile has no agent yet.
    if (launch_.hosts().rank(rank).host().link() != nullptr) under_way_[rank] = 0;
  }
  if (under_way_.empty()) return;
  input_ = UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  // Asio would set O_NONBLOCK on the open file, which other processes share: let it watch an epoll descriptor instead.
  UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {}};
  // A regular file cannot be watched, and is always readable.
  is_watched_ =
      watch && input_ && ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, input_.get(), &event) == 0;
  if (is_watched_) readable_.assign(watch.release());
  read_next();
}

bool InputRelay::has_room() const {
  return std::ranges::all_of(
      under_way_, [](const auto& each) { return each.second + kReadAtOnce <= kInputWindow; });
}

void InputRelay::read_next() {
  if (is_over_ || is_at_end_ || is_waiting_ || !has_room()) return;
  is_waiting_ = true;
  const auto self = shared_from_this();
  if (!is_watched_) {
    // Post the read, so that the loop can handle other events before it.
    return net::asio::post(later_.get_executor(), [this, self] { read(); });
  }
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {}};
  ::epoll_ctl(readable_.native_handle(), EPOLL_CTL_MOD, input_.get(), &event);
  readable_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                       [this, self](const net::error_code& error) {
                         if (error || is_over_) return;
                         epoll_event ready;
                         ::epoll_wait(readable_.native_handle(), &ready, 1, 0);
                         read();
                       });
}

void InputRelay::read() {
  if (is_over_) return;
  is_waiting_ = false;
  // The kernel would stop a background process that reads its terminal.
  if (::isatty(input_.get()) == 1 && ::tcgetpgrp(input_.get()) != ::getpgrp()) {
    is_waiting_ = true;
    later_.expires_after(kLookAgain);
    return later_.async_wait([this, self = shared_from_this()](const net::error_code& error) {
      if (error) return;
      is_waiting_ = false;
      read_next();
    });
  }
  // Another process may have read the line in the meantime. A read would then block the loop until the next line.
  pollfd poll{input_.get(), POLLIN, 0};
  if (is_watched_ && ::poll(&poll, 1, 0) == 0) return read_next();
  std::array<std::byte, kReadAtOnce> buffer;
  const ssize_t size = ::read(input_.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return read_next();
  is_at_end_ = size <= 0;
  send(ByteView(buffer).first(is_at_end_ ? 0 : static_cast<size_t>(size)));
  read_next();
}

// Sends input to the ranks. Empty `bytes` mean end of file.
void InputRelay::send(ByteView bytes) {
  const std::string text(as_text(bytes));
  for (auto& [rank, under_way] : under_way_) {
    under_way += text.size();
    if (text.ends_with('\n') && ::isatty(input_.get()) == 1) {
      launch_.output().terminal().line_was_typed();
      launch_.redraw();
    }
    launch_.hosts().rank(rank).host().link()->send(Input{rank, text});
  }
}

}  // namespace

std::shared_ptr<JobPart> input_relay(PartLaunch& launch) {
  return std::make_shared<InputRelay>(launch);
}

}  // namespace hvd::launcher
