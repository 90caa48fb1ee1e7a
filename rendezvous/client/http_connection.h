// One signed connection to a rendezvous server (PROTOCOL.md): one request at a time. Owns the socket and the
// connection's key. HttpStore owns the connection and repeats requests on a new one. Blocks the calling thread; starts
// no thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "net/blocking_stream.h"
#include "net/endpoint.h"
#include "net/http.h"
#include "net/tls/tls_stream.h"
#include "rendezvous/wire/signature.h"

namespace hvd::rendezvous {

// Exponential backoff with jitter: pauses between attempts that grow and vary at random, so that many clients of one
// server do not try at the same moment. One thread at a time.
class Backoff {
 public:
  Backoff(double first_seconds, double longest_seconds)
      : first_(first_seconds), longest_(longest_seconds), pause_(first_seconds) {}

  // Sleeps for half to one and a half times the current pause, at most until the deadline.
  void rest(Deadline deadline);
  void begin_anew() { pause_ = first_; }

 private:
  double first_;
  double longest_;
  double pause_;
};

class HttpConnection {
 public:
  struct Answer {
    int status = 0;
    Bytes body;
  };

  // Connects and sends hello. With `tls`, the server's certificate must be for the endpoint's host.
  static Result<std::unique_ptr<HttpConnection>> open(
      const net::Endpoint& endpoint, const Secret& secret, Deadline deadline,
      const std::optional<net::TlsOptions>& tls = {});

  // Sends a request, and returns the server's answer after checking its signature. After an error the
  // connection cannot be used again. kUnavailable: the connection was lost, and the server may have
  // executed the request. kPermissionDenied: client and server have different secrets.
  Result<Answer> exchange(std::string_view method, std::string_view target, ByteView body,
                          Deadline deadline);
  // Returns whether the server has announced that the last answer ends the connection.
  bool is_closed() const { return is_closed_; }
  // Returns the descriptor, only for HttpStore::interrupt.
  int fd() const { return fd_; }

 private:
  using Stream = std::variant<net::BlockingStream, net::TlsStream>;

  HttpConnection(Stream stream, int fd);
  Status hello(const Secret& secret, Deadline deadline);
  Status send(std::string_view head, ByteView body, Deadline deadline);
  Status receive(Deadline deadline);

  Stream stream_;
  const int fd_;  // descriptor of stream_
  std::unique_ptr<net::HttpResponseParser> parser_;
  Bytes input_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::unique_ptr<SessionKey> key_;
  uint64_t count_ = 0;
  bool is_closed_ = false;
};

}  // namespace hvd::rendezvous
