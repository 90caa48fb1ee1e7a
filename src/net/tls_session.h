// The client side of TLS without I/O, by OpenSSL, which only tls_session.cpp includes: takes received
// bytes, and returns bytes to send. One caller at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::net {

// Whom a client believes, and who it is.
struct TlsOptions {
  std::string ca_file = {};      // PEM: authorities; empty: the system's
  std::string ca_setting = {};   // where users name that file, for errors: "--ca"
  std::string certificate = {};  // PEM: the client's own, where the server wants one; else empty
  std::string key = {};          // and its key
};

class TlsSession {
 public:
  // The client's session with a server whose certificate must be for `host`, a name or an address.
  // An error names the file that cannot be used.
  static Result<TlsSession> client(const std::string& host, const TlsOptions& options);
  TlsSession(TlsSession&&) noexcept;
  TlsSession& operator=(TlsSession&&) noexcept;
  ~TlsSession();

  // As far as what was fed allows; true when both know each other. Send the output after each step,
  // also after an error. kFailedPrecondition: the server is not believed, or speaks no TLS.
  Result<bool> shake_hands();
  // After the handshake. Nothing: more must be fed first; 0: the server has ended the stream.
  // kFailedPrecondition: it wants a certificate, as it says only now.
  Result<std::optional<size_t>> read(std::span<std::byte> buffer);
  // Whether read() would bring anything of what was fed.
  bool has_something();
  // After the handshake; all of it is in the output then.
  Status write(ByteView bytes);

  void feed(ByteView received);
  // Takes the bytes to send; they are returned once.
  Bytes take_output();

 private:
  class Impl;
  explicit TlsSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::net
