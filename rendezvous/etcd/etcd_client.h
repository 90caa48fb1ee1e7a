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
#include "rendezvous/etcd/etcd_access.h"
#include "rendezvous/etcd/etcd_connection.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {

class EtcdClient : public std::enable_shared_from_this<EtcdClient> {
 public:
  EtcdClient(net::asio::any_io_executor executor, std::vector<net::Endpoint> endpoints,
             Access access = {});
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;

  // The body of etcd's answer. kNotFound, kInvalidArgument, ...: etcd has refused the request.
  // kUnavailable: no endpoint could be reached; names them. kFailedPrecondition: TLS fails, or etcd
  // has no users. kPermissionDenied: it does not know this one. kAborted: stop was called.
  net::Task<Result<Bytes>> call(std::string path, std::string body, Deadline deadline);
  // Ends the call under way, and each later one.
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
  void tell_of_outage(const Status& failure, Deadline deadline);
  void tell_of_end();
  Status explain(const Status& failure) const;

  const std::vector<net::Endpoint> endpoints_;
  const Access access_;
  size_t current_ = 0;  // of endpoints_
  EtcdConnection connection_;
  std::string token_;              // empty: to be asked for, where there is a user
  net::asio::steady_timer limit_;  // ends an attempt when it fires
  net::asio::steady_timer pause_;
  bool is_late_ = false;  // the attempt
  bool is_stopped_ = false;
  uint64_t epoch_ = 0;  // of limit_
  int failures_ = 0;    // since an endpoint answered
  bool is_told_ = false;
  Clock::time_point outage_;
};

}  // namespace hvd::rendezvous::etcd
