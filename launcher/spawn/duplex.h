// The stream between the launcher and one agent: an ssh channel, a local child's pipes, or a
// connection that the agent opened. An interface. Lives on the launcher's loop; one reader and one
// writer at a time.
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

  // Reads at least one byte; returns 0 at the end of the stream. An error has the reason why the
  // stream broke.
  virtual net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) = 0;
  // Writes all bytes.
  virtual net::Task<Status> write(ByteView bytes) = 0;
  // From now on, if the stream's connection breaks, the stream waits this long for another
  // connection, if it can get one. Before the call, and with 0, losing the connection ends the
  // stream. `silence_seconds`: the caller gives up after this time without a reply; 0: never.
  virtual void survive(double /*seconds*/, double /*silence_seconds*/) {}
  // The peer has not replied for this time, in seconds; called repeatedly. The stream may open
  // another connection in time, and uses the present one until then.
  virtual void on_silence(double /*seconds*/) {}
  // Ends the stream at once, and wakes the reader and the writer. The peer detects the end.
  virtual void close() = 0;
  // Returns the peer's standard error outside the protocol (for example of a shell), and the remote
  // process's exit status if known, for messages. May be empty.
  virtual std::string last_words() const = 0;
};

}  // namespace hvd::launcher
