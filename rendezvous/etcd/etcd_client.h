// A client of etcd's JSON gateway on a loop: one request at a time, on one connection that is kept.
// An endpoint that cannot be reached, or does not answer, is left for the next one, until the
// deadline; so a request may be done twice, and must be one that may. Never blocks.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/asio.h"
#include "net/endpoint.h"
#include "net/http.h"

namespace hvd::rendezvous::etcd {

class EtcdClient : public std::enable_shared_from_this<EtcdClient> {
 public:
  EtcdClient(net::asio::any_io_executor executor, std::vector<net::Endpoint> endpoints);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;

  // The body of etcd's answer. kNotFound, kInvalidArgument, ...: etcd has refused the request.
  // kUnavailable: no endpoint could be reached; names them. kAborted: stop was called.
  net::Task<Result<Bytes>> call(std::string path, std::string body, Deadline deadline);
  // Ends the call under way, and each later one.
  void stop();

 private:
  struct Answer {
    int status = 0;
    Bytes body;
  };
  net::Task<Result<Answer>> call_once(const std::string& path, const std::string& body,
                                      Deadline deadline);
  std::string head_of(const std::string& path, size_t body) const;
  net::Task<Status> connect();
  net::Task<Result<Answer>> receive();
  net::Task<void> rest(Deadline deadline);
  void arm(Deadline deadline);
  void disarm();
  void drop();
  void tell_of_outage(const Status& failure, Deadline deadline);
  void tell_of_end();
  Status explain(const Status& failure) const;

  const std::vector<net::Endpoint> endpoints_;
  size_t current_ = 0;  // of endpoints_
  net::asio::ip::tcp::resolver resolver_;
  net::asio::ip::tcp::socket socket_;
  net::asio::steady_timer limit_;  // ends an attempt when it fires
  net::asio::steady_timer pause_;
  std::unique_ptr<net::HttpResponseParser> parser_;
  Bytes input_;
  bool is_connected_ = false;
  bool is_late_ = false;  // the attempt
  bool is_stopped_ = false;
  uint64_t epoch_ = 0;    // of limit_
  int failures_ = 0;      // since an endpoint answered
  bool is_told_ = false;
  Clock::time_point outage_;
};

}  // namespace hvd::rendezvous::etcd
