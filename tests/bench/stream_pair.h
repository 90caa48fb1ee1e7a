// A plain TCP connection between two hosts. Both ends send and receive at once at full speed, to
// measure the link without a reduction.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <string>

namespace hvd::bench {

class StreamPair {
 public:
  StreamPair(bool listens, const std::string& address) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(4711);
    ::inet_aton(address.c_str(), &where.sin_addr);
    const auto* name = reinterpret_cast<const sockaddr*>(&where);
    const int one = 1;
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (listens) {
      const int listener = fd_;
      ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      ::bind(listener, name, sizeof where);
      ::listen(listener, 1);
      fd_ = ::accept(listener, nullptr, nullptr);
      ::close(listener);
    } else {
      while (::connect(fd_, name, sizeof where) != 0) {
        ::close(fd_);
        ::usleep(1000);  // until the other host listens
        fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
      }
    }
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }
  ~StreamPair() { ::close(fd_); }

  void exchange(const char* out, char* in, size_t bytes) {
    size_t sent = 0;
    size_t received = 0;
    while (sent < bytes || received < bytes) {
      const ssize_t put = sent < bytes ? ::send(fd_, out + sent, bytes - sent, MSG_NOSIGNAL) : 0;
      if (put > 0) sent += static_cast<size_t>(put);
      const ssize_t got = received < bytes ? ::recv(fd_, in + received, bytes - received, 0) : 0;
      if (got > 0) received += static_cast<size_t>(got);
      if (put > 0 || got > 0) continue;
      pollfd waiting{fd_, POLLIN, 0};
      if (sent < bytes) waiting.events |= POLLOUT;
      ::poll(&waiting, 1, -1);
    }
  }

 private:
  int fd_;
};

}  // namespace hvd::bench
