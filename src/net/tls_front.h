// The server side of TLS, by OpenSSL, which only tls_front.cpp includes. Accepts connections, and
// passes each on as a plain socket after the TLS handshake. Answers an HTTP client without TLS with
// status 426. The rendezvous server owns it. Lives on the server's loop and never blocks it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/asio.h"

namespace hvd::net {

struct TlsLimits {
  std::chrono::milliseconds handshake{10'000};
  // For a part of at most 64 KiB to be taken by the client.
  std::chrono::milliseconds write{60'000};
};

class TlsFront {
 public:
  // PEM files: the certificate with those that lead to its authority, and its key.
  static Result<TlsFront> make(const std::string& certificate, const std::string& key,
                               TlsLimits limits = {});

  // `adopt` gets the far end of what the client says; it is not called when the handshake fails.
  void take(StreamSocket socket, std::function<void(StreamSocket)> adopt) const;

 private:
  struct Shared;
  explicit TlsFront(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::net
