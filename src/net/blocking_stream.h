// A connected stream socket for code without a loop. Each call blocks the calling thread until it is
// done or its deadline has passed. Owns the descriptor; starts no thread. One caller at a time.
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
  // The first of the addresses that answers; they race, each a quarter of a second after the one
  // before. kUnavailable: none did, and why.
  static Result<BlockingStream> connect(std::span<const SocketAddress> addresses,
                                        Deadline deadline);
  // `fd` must be non-blocking.
  explicit BlockingStream(UniqueFd fd) : fd_(std::move(fd)) {}

  // All of both parts, or until the peer has something to say: then *interrupted, and what was
  // not sent is lost.
  Status write(ByteView head, ByteView body, Deadline deadline, bool& interrupted);
  // At least one byte; 0 is the end of the stream.
  Result<size_t> read_some(std::span<std::byte> buffer, Deadline deadline);

  int fd() const { return fd_.get(); }

 private:
  void let_recv_wait();

  UniqueFd fd_;
  bool recv_waits_ = false;
};

}  // namespace hvd::net
