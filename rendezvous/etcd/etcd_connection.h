// One connection to etcd, with or without TLS: one request at a time. Owns the socket. An EtcdClient
// owns this on its loop. Never blocks, and has no time limit: the client ends a call by close().
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/asio.h"
#include "net/endpoint.h"
#include "net/http.h"
#include "net/tls/tls_session.h"

namespace hvd::rendezvous::etcd {

class EtcdConnection {
 public:
  struct Answer {
    int status = 0;
    Bytes body;
  };

  EtcdConnection(net::asio::any_io_executor executor, std::optional<net::TlsOptions> tls);

  // kUnavailable: the endpoint does not answer. kFailedPrecondition, kInvalidArgument: TLS failed.
  net::Task<Status> open(const net::Endpoint& endpoint);
  bool is_open() const { return is_open_; }
  // Sends a request and returns the answer. Closes the connection after a failure, or if etcd asks
  // for it.
  net::Task<Result<Answer>> exchange(const std::string& head, const std::string& body);
  // Closes the connection, and ends a call of open() or exchange() that waits.
  void close();

 private:
  net::Task<Status> shake_hands(const std::string& host);
  net::Task<Status> send(const std::string& head, const std::string& body);
  net::Task<Result<Answer>> receive();
  net::Task<Status> take_in();

  const std::optional<net::TlsOptions> tls_;
  net::asio::ip::tcp::resolver resolver_;
  net::asio::ip::tcp::socket socket_;
  std::optional<net::TlsSession> session_;
  std::unique_ptr<net::HttpResponseParser> parser_;
  Bytes input_;      // received bytes that parser_ has not consumed, after TLS
  size_t size_ = 0;  // number of bytes in input_
  bool is_open_ = false;
};

}  // namespace hvd::rendezvous::etcd
