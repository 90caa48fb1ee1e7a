// The client side of TLS over a BlockingStream. Blocks the calling thread. One caller at a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "net/blocking_stream.h"
#include "net/tls/tls_session.h"

namespace hvd::net {

class TlsStream {
 public:
  // Runs the handshake. The server needs a certificate for `host` (a name or an address) from an
  // authority of the options. kFailedPrecondition: the certificate is not trusted; has the reason.
  static Result<TlsStream> connect(BlockingStream stream, const std::string& host,
                                   const TlsOptions& options, Deadline deadline);
  TlsStream(TlsStream&&) noexcept;
  TlsStream& operator=(TlsStream&&) noexcept;
  ~TlsStream();

  // As in BlockingStream.
  Status write(ByteView head, ByteView body, Deadline deadline, bool& interrupted);
  Result<size_t> read_some(std::span<std::byte> buffer, Deadline deadline);

 private:
  class Impl;
  explicit TlsStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::net
