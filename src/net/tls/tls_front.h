// The handshakes of a TLS server, by OpenSSL, which only tls_*.cpp include. Takes accepted sockets,
// and passes each on after its TLS handshake. A client without TLS is passed on in plain text, or
// gets status 426 if the server has a certificate. The rendezvous server owns the TlsFront,
// which lives on the server's loop and never blocks the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/secrets/hmac.h"
#include "net/asio.h"
#include "net/tls/accepted_socket.h"

namespace hvd::net {

struct TlsLimits {
  std::chrono::milliseconds handshake{10'000};
  // Maximum number of concurrent handshakes. A further one ends the oldest, whose client may connect again.
  size_t unproven = 1024;
};

// The authentication methods of a server: a certificate, a key shared with its clients, or
// both, of which each client chooses one.
struct TlsServerOptions {
  std::string certificate = {};  // PEM file with the certificate and its chain; may be empty
  std::string key = {};          // PEM file with the certificate's private key
  std::optional<Digest> shared_key = {};  // tls_key.h
  // TlsFront calls these functions with the address of a client that offers another shared
  // key, or whose stream was altered in transit.
  std::function<void(const std::string& peer)> on_other_key = {};
  std::function<void(const std::string& peer)> on_altered = {};
  TlsLimits limits = {};
};

struct TlsServerContext;

class TlsFront {
 public:
  // Loads the certificate files.
  static Result<TlsFront> make(TlsServerOptions options);

  // Runs the handshake on `socket`, then passes the connection to `adopt`. A failed handshake does not
  // call `adopt`.
  using Adopt = std::function<void(AcceptedSocket)>;
  void take(StreamSocket socket, Adopt adopt) const;

 private:
  explicit TlsFront(std::shared_ptr<TlsServerContext> server) : server_(std::move(server)) {}
  std::shared_ptr<TlsServerContext> server_;
};

}  // namespace hvd::net
