#include "collectives/lane.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace hvd::collectives {

Status Lane::attach(GuardedFd socket) {
  socket_ = std::move(socket);
  readable_ = writable_ = true;
  return loop_.add(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, *this);
}

void Lane::close() {
  if (!socket_) return;
  loop_.remove(socket_.get());
  socket_.reset();
}

void Lane::on_events(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
}

void Lane::end(int reason) {
  readable_ = writable_ = false;
  if (!ended_) end_reason_ = reason;
  ended_ = true;
}

size_t Lane::write_some(ByteView bytes) {
  size_t written = 0;
  while (writable_ && written < bytes.size()) {
    const ssize_t size = ::send(socket_.get(), bytes.data() + written, bytes.size() - written,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) {
      written += static_cast<size_t>(size);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      writable_ = false;
    } else if (errno != EINTR) {
      // What the peer sent before its end can still be read.
      writable_ = false;
      ended_ = true;
      end_reason_ = errno;
    }
  }
  return written;
}

size_t Lane::read_some(std::span<std::byte> bytes) {
  size_t got = 0;
  while (readable_ && got < bytes.size()) {
    const ssize_t size =
        ::recv(socket_.get(), bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
    if (size > 0) {
      got += static_cast<size_t>(size);
    } else if (size == 0) {
      end(0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      readable_ = false;
    } else if (errno != EINTR) {
      end(errno);
    }
  }
  return got;
}

}  // namespace hvd::collectives
