// One connection to etcd on a loop, by TLS where that is wanted; one request at a time. Never
// blocks; who wants a limit calls close.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/asio.h"
#include "net/endpoint.h"
#include "net/http.h"
#include "net/tls_session.h"

namespace hvd::rendezvous::etcd {

class EtcdConnection {
 public:
  struct Answer {
    int status = 0;
    Bytes body;
  };

  EtcdConnection(net::asio::any_io_executor executor, std::optional<net::TlsOptions> tls);

  // kUnavailable: nobody answers there. kFailedPrecondition, kInvalidArgument: TLS fails, and why.
  net::Task<Status> open(const net::Endpoint& endpoint);
  bool is_open() const { return is_open_; }
  // Closed afterwards unless etcd keeps it open.
  net::Task<Result<Answer>> exchange(const std::string& head, const std::string& body);
  // Ends what is under way, too.
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
  Bytes input_;      // of HTTP
  size_t size_ = 0;  // of what is in it
  bool is_open_ = false;
};

}  // namespace hvd::rendezvous::etcd
