// The stream between the launcher and one agent: an ssh channel, a local child's pipes, or a
// connection that the agent opened. A seam. Lives on the launcher's loop; one reader and one
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

  // Reads at least one byte; returns 0 at the end of the stream. An error says why the stream
  // broke.
  virtual net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) = 0;
  // Writes all bytes.
  virtual net::Task<Status> write(ByteView bytes) = 0;
  // From now on, the stream waits this long for another connection when its own breaks, if it can get
  // one. Before, and at 0, the loss of the connection is the end of the stream.
  // `silence_seconds`: the caller gives the far side up after so long without an answer; 0: never.
  virtual void survive(double /*seconds*/, double /*silence_seconds*/) {}
  // The far side has not answered for so long, in seconds; repeated while it does not. The stream may open another
  // connection in time, and uses the present one until then.
  virtual void on_silence(double /*seconds*/) {}
  // Ends the stream at once, and wakes the reader and the writer. The peer sees the end.
  virtual void close() = 0;
  // Returns, for messages, the peer's standard error outside of the protocol (a shell's complaint)
  // and the exit status of the remote process if known. Empty if there is neither.
  virtual std::string last_words() const = 0;
};

}  // namespace hvd::launcher
