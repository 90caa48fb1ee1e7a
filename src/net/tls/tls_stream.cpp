#include "net/tls/tls_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hvd::net {
namespace {

constexpr size_t kTlsChunk = 16 * 1024;

}  // namespace

Result<TlsStream> TlsStream::connect(BlockingStream stream, const std::string& host,
                                     const TlsOptions& options, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(TlsSession session, TlsSession::client(host, options));
  TlsStream made(std::move(stream), std::move(session));
  HVD_RETURN_IF_ERROR(made.shake_hands(deadline));
  return made;
}

Status TlsStream::shake_hands(Deadline deadline) {
  for (;;) {
    const auto is_done = session_.shake_hands();
    const Status sent = flush(deadline, nullptr);  // sends alerts too
    if (!is_done.ok()) return is_done.status();
    HVD_RETURN_IF_ERROR(sent);
    if (*is_done) return {};
    HVD_ASSIGN_OR_RETURN(const size_t size, take_in(deadline));
    if (size == 0) return unavailable("the server closed the connection before it spoke TLS");
  }
}

Status TlsStream::write(ByteView head, ByteView body, Deadline deadline, bool& interrupted) {
  interrupted = false;
  HVD_RETURN_IF_ERROR(write_all(head, deadline, interrupted));
  return write_all(body, deadline, interrupted);
}

Status TlsStream::write_all(ByteView bytes, Deadline deadline, bool& interrupted) {
  while (!bytes.empty() && !interrupted) {
    const ByteView chunk = bytes.first(std::min(bytes.size(), kTlsChunk));
    HVD_RETURN_IF_ERROR(session_.write(chunk));
    bytes = bytes.subspan(chunk.size());
    HVD_RETURN_IF_ERROR(flush(deadline, &interrupted));
  }
  return {};
}

Result<size_t> TlsStream::read_some(std::span<std::byte> buffer, Deadline deadline) {
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const auto size, session_.read(buffer));
    if (size) return *size;
    HVD_RETURN_IF_ERROR(flush(deadline, nullptr));
    HVD_ASSIGN_OR_RETURN(const size_t taken, take_in(deadline));
    if (taken == 0) return size_t{0};
  }
}

// Writes the session's output. Sets *interrupted if the peer sends data before the output is written.
Status TlsStream::flush(Deadline deadline, bool* interrupted) {
  const Bytes bytes = session_.take_output();
  ByteView left = bytes;
  while (!left.empty()) {
    const ssize_t count =
        ::send(stream_.fd(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      left = left.subspan(static_cast<size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("cannot send", errno);
    const bool listens = interrupted != nullptr;
    pollfd entry{stream_.fd(), static_cast<short>(POLLOUT | (listens ? POLLIN : 0)), 0};
    if (::poll(&entry, 1, deadline.poll_timeout()) == 0 && deadline.passed()) {
      return deadline_exceeded("no answer in time");
    }
    if (listens && (entry.revents & POLLIN) != 0) {
      HVD_ASSIGN_OR_RETURN(const size_t size, take_in(deadline));
      *interrupted = size == 0 || session_.has_something();
      if (*interrupted) break;
    }
  }
  return {};
}

// Moves bytes from the socket into the session; returns 0 at the end of the stream.
Result<size_t> TlsStream::take_in(Deadline deadline) {
  std::array<std::byte, kTlsChunk> buffer;
  HVD_ASSIGN_OR_RETURN(const size_t size, stream_.read_some(buffer, deadline));
  session_.feed(ByteView(buffer).first(size));
  return size;
}

}  // namespace hvd::net
