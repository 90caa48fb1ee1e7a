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
  // The time in which a client must accept a part of at most 64 KiB.
  std::chrono::milliseconds write{60'000};
};

class TlsFront {
 public:
  // Loads PEM files: the certificate with its chain, and its private key.
  static Result<TlsFront> make(const std::string& certificate, const std::string& key,
                               TlsLimits limits = {});

  // Runs the handshake on `socket`, then passes a plain socket with the decrypted stream to
  // `adopt`. A failed handshake does not call `adopt`.
  void take(StreamSocket socket, std::function<void(StreamSocket)> adopt) const;

 private:
  struct Shared;
  explicit TlsFront(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::net
