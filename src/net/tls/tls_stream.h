// The client side of TLS over a BlockingStream. Blocks the calling thread. One caller at a time.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "net/blocking_stream.h"
#include "net/tls/tls_session.h"

namespace hvd::net {

class TlsStream {
 public:
  // Runs the handshake. The server needs a certificate for `host` (a name or an address) from an authority of the
  // options. kFailedPrecondition: the certificate is not trusted; the message has the reason.
  static Result<TlsStream> connect(BlockingStream stream, const std::string& host,
                                   const TlsOptions& options, Deadline deadline);
  // As in BlockingStream.
  Status write(ByteView head, ByteView body, Deadline deadline, bool& interrupted);
  Result<size_t> read_some(std::span<std::byte> buffer, Deadline deadline);

 private:
  TlsStream(BlockingStream stream, TlsSession session)
      : stream_(std::move(stream)), session_(std::move(session)) {}
  Status shake_hands(Deadline deadline);
  Status write_all(ByteView bytes, Deadline deadline, bool& interrupted);
  Status flush(Deadline deadline, bool* interrupted);
  Result<size_t> take_in(Deadline deadline);

  BlockingStream stream_;
  TlsSession session_;
};

}  // namespace hvd::net
