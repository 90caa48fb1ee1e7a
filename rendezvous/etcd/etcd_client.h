// A client of etcd's JSON gateway: one request at a time, on one connection that stays open. If an endpoint fails or
// does not answer, the client sends the request to the next endpoint, until the deadline. etcd may therefore execute a
// request twice: callers send only requests that may be repeated. An EtcdStore owns the client, which lives on the
// store's loop and never blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/asio.h"
#include "net/endpoint.h"
#include "net/http.h"
#include "net/tls/tls_session.h"
#include "rendezvous/etcd/etcd_access.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {

// One connection to etcd, with or without TLS: one request at a time. Owns the socket. An EtcdClient
// owns this object on its loop. Never blocks, and has no time limit: the client ends a call by close().
class EtcdConnection {
 public:
  struct Answer {
    int status = 0;
    Bytes body;
  };

  EtcdConnection(net::asio::any_io_executor executor, std::optional<net::TlsOptions> tls);

  // Opens the connection. kUnavailable: the endpoint does not answer. kFailedPrecondition, kInvalidArgument: TLS
  // failed.
  net::Task<Status> open(const net::Endpoint& endpoint);
  bool is_open() const { return is_open_; }
  // Sends a request and returns the answer. Closes the connection after a failure, or if etcd
  // requests it.
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

class EtcdClient : public std::enable_shared_from_this<EtcdClient> {
 public:
  EtcdClient(net::asio::any_io_executor executor, std::vector<net::Endpoint> endpoints,
             Access access = {});
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;

  // Returns the body of etcd's answer. kNotFound, kInvalidArgument: etcd has refused the request. kAborted: stop() was
  // called. Without a deadline, the call repeats the request after any other failure. Errors with a deadline:
  // kUnavailable if no endpoint was reached (the message names all); kFailedPrecondition if TLS failed or etcd has no
  // users; kPermissionDenied for a wrong user or password, or a missing permission.
  net::Task<Result<Bytes>> call(std::string path, std::string body, Deadline deadline);
  // Ends the current call, and each later one, with kAborted.
  void stop();

 private:
  using Answer = EtcdConnection::Answer;
  net::Task<Result<Answer>> call_once(const std::string& path, const std::string& body,
                                      Deadline deadline);
  std::string head_of(const std::string& path, size_t body) const;
  net::Task<Status> log_in(Deadline deadline);
  std::string advise(const Fault& fault) const;
  net::Task<void> rest(Deadline deadline);
  void arm(Deadline deadline);
  void disarm();
  void report_outage(const Status& failure, Deadline deadline);
  void report_recovery();
  Status explain(const Status& failure) const;

  const std::vector<net::Endpoint> endpoints_;
  const Access access_;
  size_t current_ = 0;  // index into endpoints_
  EtcdConnection connection_;
  std::string token_;              // login token of access_.user; empty: not logged in
  net::asio::steady_timer limit_;  // ends an attempt when the timer fires
  net::asio::steady_timer pause_;
  bool is_late_ = false;  // limit_ has ended the current attempt
  bool is_stopped_ = false;
  uint64_t epoch_ = 0;  // number of the attempt; limit_ ignores a late event of an earlier attempt
  int failures_ = 0;    // failed attempts since the last success
  bool has_warned_ = false;   // a warning about the outage was logged
  Clock::time_point outage_;  // time of the first of failures_
};

}  // namespace hvd::rendezvous::etcd
