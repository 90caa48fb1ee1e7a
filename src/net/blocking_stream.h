// A connected stream socket for code without an event loop. Each call blocks the calling thread
// until the call is complete or its deadline has passed. Owns the descriptor; starts no thread. One
// caller at a time.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "net/socket_address.h"

namespace hvd::net {

class BlockingStream {
 public:
  // Connects to the first address that answers. The attempts race; each begins a quarter of a second after the
  // previous one, or when one has failed. If no address answers, returns the last failure.
  static Result<BlockingStream> connect(std::span<const SocketAddress> addresses,
                                        Deadline deadline);
  // `fd` must be non-blocking.
  explicit BlockingStream(UniqueFd fd) : fd_(std::move(fd)) {}

  // Writes both parts. If the peer sends data while the write waits, the call sets `interrupted`
  // and drops the unsent bytes.
  Status write(ByteView head, ByteView body, Deadline deadline, bool& interrupted);
  // Reads at least one byte; returns 0 at the end of the stream.
  Result<size_t> read_some(std::span<std::byte> buffer, Deadline deadline);

  int fd() const { return fd_.get(); }

 private:
  void let_recv_wait();

  UniqueFd fd_;
  bool recv_waits_ = false;
};

}  // namespace hvd::net
