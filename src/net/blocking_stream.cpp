#include "net/blocking_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "base/text.h"

namespace hvd::net {
namespace {

constexpr auto kStagger = std::chrono::milliseconds(250);

Status wait_for(int fd, short events, Deadline deadline, short* seen = nullptr) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_timeout());
    if (count > 0) {
      if (seen != nullptr) *seen = entry.revents;
      return {};
    }
    if (count < 0 && errno != EINTR) return system_error("cannot poll a socket", errno);
    if (count == 0 && deadline.passed()) return deadline_exceeded("no answer in time");
  }
}

// The connects of one race.
class Race {
 public:
  Race(std::span<const SocketAddress> addresses, Deadline deadline)
      : addresses_(addresses), deadline_(deadline) {}

  Result<UniqueFd> run() {
    while (next_ < addresses_.size() || !running_.empty()) {
      if (next_ < addresses_.size()) {
        if (UniqueFd winner = start_next()) return winner;
        if (running_.empty()) continue;
      }
      HVD_ASSIGN_OR_RETURN(UniqueFd winner, wait());
      if (winner) return winner;
    }
    return failure_;
  }

 private:
  // The socket when it is connected at once.
  UniqueFd start_next() {
    const SocketAddress& address = addresses_[next_++];
    UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      failure_ = system_error("cannot make a socket", errno);
      return {};
    }
    if (::connect(fd.get(), address.get(), address.size) == 0) return fd;
    if (errno == EINPROGRESS) {
      running_.push_back(std::move(fd));
    } else {
      failure_ = system_error("cannot connect", errno);
    }
    return {};
  }

  // A winner, or nothing when a new one should start or one has failed.
  Result<UniqueFd> wait() {
    Deadline until = deadline_;
    if (next_ < addresses_.size() && until.time() > Clock::now() + kStagger) {
      until = Deadline::at(Clock::now() + kStagger);
    }
    std::vector<pollfd> entries;
    for (const UniqueFd& fd : running_) entries.push_back({fd.get(), POLLOUT, 0});
    const int count = ::poll(entries.data(), entries.size(), until.poll_timeout());
    if (count < 0 && errno != EINTR) return system_error("cannot poll a socket", errno);
    if (count == 0 && deadline_.passed()) return deadline_exceeded("cannot connect in time");
    for (size_t i = entries.size(); count > 0 && i-- > 0;) {
      if (entries[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      if (::getsockopt(entries[i].fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      if (error == 0) return std::move(running_[i]);
      failure_ = system_error("cannot connect", error);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return UniqueFd();
  }

  std::span<const SocketAddress> addresses_;
  Deadline deadline_;
  size_t next_ = 0;
  std::vector<UniqueFd> running_;
  Status failure_ = unavailable("there is no address to connect to");
};

}  // namespace

Result<BlockingStream> BlockingStream::connect(std::span<const SocketAddress> addresses,
                                               Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(UniqueFd fd, Race(addresses, deadline).run());
  tune_connection(fd.get());
  return BlockingStream(std::move(fd));
}

Status BlockingStream::write(ByteView head, ByteView body, Deadline deadline, bool& interrupted) {
  interrupted = false;
  has_asked_ = true;
  while (!head.empty() || !body.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                      {const_cast<std::byte*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (count >= 0) {
      const size_t of_head = std::min(head.size(), static_cast<size_t>(count));
      head = head.subspan(of_head);
      body = body.subspan(static_cast<size_t>(count) - of_head);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("cannot send", errno);
    short seen = 0;
    HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN | POLLOUT, deadline, &seen));
    if (seen & POLLIN) {
      interrupted = true;
      return {};
    }
  }
  return {};
}

Result<size_t> BlockingStream::read_some(std::span<std::byte> buffer, Deadline deadline) {
  if (std::exchange(has_asked_, false)) HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, deadline));
  for (;;) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("cannot receive", errno);
    HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, deadline));
  }
}

}  // namespace hvd::net
