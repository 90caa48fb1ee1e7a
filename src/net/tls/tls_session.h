// One end of a TLS connection without I/O: takes received bytes, and returns bytes to send. The owner of this
// object (TlsStream, AcceptedSocket, the agent) moves the bytes. This header does not include OpenSSL. One caller
// at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"

struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace hvd::net {

// The authorities that a client trusts, and its own certificate.
struct TlsOptions {
  std::string ca_file = {};      // PEM file of authorities; empty: the system's authorities
  std::string ca_setting = {};   // the setting of that file, for errors: "--ca"
  std::string certificate = {};  // PEM file of the client's certificate; may be empty
  std::string key = {};          // PEM file of the certificate's private key
};

class TlsSession {
 public:
  // Creates the session of a client. The server's certificate must be for `host`, a name or an
  // address. An error names the unusable file.
  static Result<TlsSession> client(const std::string& host, const TlsOptions& options);
  // Creates the session of a client whose server holds this key (tls_context.h). Accepts no
  // certificate.
  static Result<TlsSession> with_shared_key(const Digest& key);
  // Creates a server's session, which shares the context (TlsFront).
  static Result<TlsSession> server(ssl_ctx_st* context);
  // Advances the handshake as far as the received bytes allow; returns true when it is complete. The caller sends
  // the output after each step, also after an error. kFailedPrecondition: the server's certificate is not trusted,
  // or the server does not use TLS; on a server, the client did not authenticate as required. kPermissionDenied:
  // client and server have different shared keys.
  Result<bool> shake_hands();
  // Reads decrypted bytes after the handshake. Returns nullopt if the caller must feed() more bytes first, and 0 if
  // the peer has ended the stream. kFailedPrecondition: the server requires a client certificate; TLS reports this
  // only after the handshake.
  Result<std::optional<size_t>> read(std::span<std::byte> buffer);
  // Returns whether read() would return bytes without a further feed().
  bool has_something();
  // Encrypts all bytes into the output; call after the handshake.
  Status write(ByteView bytes);
  // Puts the end of this side's stream into the output.
  void end();

  void feed(ByteView received);
  // Takes the bytes to send; each byte is returned once.
  Bytes take_output();

 private:
  struct Free {
    void operator()(ssl_st* session) const;
    void operator()(ssl_ctx_st* context) const;
  };

  TlsSession() = default;
  Status open(const std::string& host, const TlsOptions& options);
  Status open(const Digest& key);
  Status accept(ssl_ctx_st* context);
  Status make_context();
  Status make_session();
  static Status refuse_client();
  Result<bool> check_client() const;
  Status refuse_shared_key() const;
  Status refuse() const;

  std::string host_;
  std::string ca_setting_;
  bool has_shared_key_ = false;
  bool is_server_ = false;
  std::unique_ptr<ssl_ctx_st, Free> context_;
  // The session reads and writes memory instead of the socket, so that no write raises SIGPIPE in the user's program.
  std::unique_ptr<ssl_st, Free> session_;
  bio_st* incoming_ = nullptr;
  bio_st* outgoing_ = nullptr;
};

}  // namespace hvd::net
