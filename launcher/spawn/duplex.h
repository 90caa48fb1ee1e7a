// The interface of a stream between the launcher and one agent: an ssh channel, a local child's pipes, or a
// connection that the agent opened. A stream lives on the launcher's loop, with one reader and one writer at a
// time.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

class Duplex {
 public:
  virtual ~Duplex() = default;

  // Reads at least one byte; returns 0 at the end of the stream. An error states why the
  // stream broke.
  virtual net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) = 0;
  // Writes all bytes.
  virtual net::Task<Status> write(ByteView bytes) = 0;
  // After this call, a stream whose connection breaks waits this long for another connection, if the
  // stream can get one. Before the call, and with 0 seconds, losing the connection ends the
  // stream. `silence_seconds`: the caller gives up after this time without a reply; 0: never.
  virtual void survive(double /*seconds*/, double /*silence_seconds*/) {}
  // Informs the stream that the peer has not replied for this time; called repeatedly. The stream may open
  // another connection early enough, and uses the current connection until then.
  virtual void on_silence(double /*seconds*/) {}
  // Ends the stream at once, and wakes the reader and the writer. The peer detects the end.
  virtual void close() = 0;
  // Returns what the peer, for example a shell, wrote to standard error outside the protocol, and the remote
  // process's exit status if known, for messages. May be empty.
  virtual std::string last_words() const = 0;
};

}  // namespace hvd::launcher
