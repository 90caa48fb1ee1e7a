// The handshakes of a TLS server, by OpenSSL. Takes accepted sockets, and passes each one on after its TLS
// handshake. Passes a client without TLS on in plain text, or sends it status 426 if the server has a certificate.
// The rendezvous server owns the TlsFront, which lives on the server's loop and never blocks the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "net/asio.h"

struct ssl_ctx_st;

namespace hvd::net {

// An accepted connection of a server, in plain text or by TLS. Owns the socket and the TLS session. At most one reader
// and one writer at a time. Lives on the server's loop.
class AcceptedSocket {
 public:
  // Makes a connection in plain text. The socket becomes non-blocking.
  AcceptedSocket(StreamSocket socket);  // NOLINT: a socket without TLS is one too
  // Makes a TLS connection; call shake_hands() first. If TLS refuses received bytes, which were altered in transit,
  // calls `on_altered` before the read fails; no later byte is read.
  static Result<AcceptedSocket> with_tls(StreamSocket socket, ssl_ctx_st* context,
                                         std::function<void()> on_altered);
  AcceptedSocket(AcceptedSocket&&) noexcept;
  AcceptedSocket& operator=(AcceptedSocket&&) = delete;
  ~AcceptedSocket();

  // Returns the errors of TlsSession::shake_hands().
  Task<Status> shake_hands();

  bool is_encrypted() const { return tls_ != nullptr; }
  int native_handle() { return socket_.native_handle(); }
  StreamSocket::executor_type get_executor() { return socket_.get_executor(); }

  using Done = std::tuple<error_code, size_t>;
  // Reads at least one byte. Error eof: the end of the stream; bad_message: altered bytes.
  Task<Done> read_some(asio::mutable_buffer buffer);
  // Reads without waiting. Error would_block: no bytes have arrived yet.
  size_t try_read(asio::mutable_buffer buffer, error_code& error);
  // Waits for bytes of the peer that try_read() has not read. These may be TLS records without content.
  template <typename Handler>
  void async_wait_read(Handler handler) {
    socket_.async_wait(StreamSocket::wait_read, std::move(handler));
  }

  // Writes all bytes of both buffers.
  Task<Done> write(asio::const_buffer head, asio::const_buffer body = {});
  // Writes as many bytes as the socket accepts without waiting. After a partial write, the next
  // call of try_write() or write() must continue with the rest.
  size_t try_write(asio::const_buffer head, asio::const_buffer body, error_code& error);

  // Closes the sending direction: the peer reads the end of the stream.
  void shutdown_send();
  void cancel();
  void close();

 private:
  struct Tls;
  AcceptedSocket(StreamSocket socket, std::unique_ptr<Tls> tls);

  Task<Done> read_tls(asio::mutable_buffer buffer);
  std::optional<Done> decrypt(asio::mutable_buffer buffer);
  void take_input(size_t size);
  Task<Done> write_tls(asio::const_buffer head, asio::const_buffer body);
  size_t try_write_tls(asio::const_buffer head, asio::const_buffer body, error_code& error);
  ByteView next_piece(asio::const_buffer head, asio::const_buffer body, size_t sent);
  bool flush(error_code& error);
  Task<Status> send_output();
  void end_tls();

  StreamSocket socket_;
  std::unique_ptr<Tls> tls_;  // null: plain text
};

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
  std::optional<Digest> shared_key = {};  // tls_context.h
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
