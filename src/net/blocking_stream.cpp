#include "net/blocking_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "base/text.h"

namespace hvd::net {
namespace {

constexpr auto kStagger = std::chrono::milliseconds(250);
// The longest wait inside recv. Such a wait saves a call of poll.
constexpr int kShortWait = 1;  // s

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

constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;

ssize_t send_once(int fd, ByteView bytes) {
  return ::send(fd, bytes.data(), bytes.size(), kSendFlags);
}

ssize_t send_once(int fd, ByteView head, ByteView body) {
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return ::sendmsg(fd, &message, kSendFlags);
}

// The connection attempts of one race. launcher/spawn/name_lookup.cpp also races addresses, on an
// event loop; plugins and ranks have no event loop, so this code blocks in poll().
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
  // Begins one attempt; returns the socket if it is connected at once.
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

  // Waits. Returns the connected socket, or nothing if the next attempt is due or an attempt has failed.
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
  BlockingStream stream(std::move(fd));
  stream.let_recv_wait();
  return stream;
}

void BlockingStream::let_recv_wait() {
  const timeval limit{kShortWait, 0};
  if (::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) return;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  recv_waits_ = flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) == 0;
}

Status BlockingStream::write(ByteView head, ByteView body, Deadline deadline, bool& interrupted) {
  interrupted = false;
  while (!head.empty() || !body.empty()) {
    const ssize_t count =
        body.empty() ? send_once(fd_.get(), head) : send_once(fd_.get(), head, body);
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
  int flags = recv_waits_ && deadline.time() > Clock::now() + std::chrono::seconds(kShortWait)
                  ? 0
                  : MSG_DONTWAIT;
  for (;;) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), flags);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EAGAIN && errno != EINTR) return system_error("cannot receive", errno);
    // Check the deadline also after a signal: repeated signals would prevent the timeout of recv.
    HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, deadline));
    flags = MSG_DONTWAIT;
  }
}

}  // namespace hvd::net
