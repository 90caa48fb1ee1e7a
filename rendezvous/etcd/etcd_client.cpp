#include "rendezvous/etcd/etcd_client.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {
namespace {

namespace asio = net::asio;
using std::chrono::milliseconds;

// Time for one attempt at one endpoint, in seconds.
constexpr double kAttempt = 5;
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{1000};
// A shorter outage is normal (etcd elects a leader, a member restarts) and is not logged.
constexpr milliseconds kReportAfter{2000};

// Status codes of gRPC.
constexpr int kInvalidArgumentCode = 3;
constexpr int kNotFoundCode = 5;
constexpr int kPermissionDeniedCode = 7;
constexpr int kFailedPreconditionCode = 9;
constexpr int kUnauthenticatedCode = 16;

// etcd answers these two with the code of an invalid argument.
constexpr std::string_view kOldToken = "revision of auth store is old";
constexpr std::string_view kNoUser = "user name is empty";

bool contains(const Fault& fault, std::string_view words) {
  return fault.message.find(words) != std::string::npos;
}

// The token has expired, or etcd's users or roles have changed since it was issued.
bool is_token_refused(const Fault& fault) {
  return fault.code == kUnauthenticatedCode || contains(fault, kOldToken);
}

// The code for a fault that every endpoint would repeat; nothing for a fault that may pass.
std::optional<Code> final_code(const Fault& fault) {
  if (contains(fault, kOldToken)) return {};
  switch (fault.code) {
    case kInvalidArgumentCode:
      return contains(fault, kNoUser) ? Code::kPermissionDenied : Code::kInvalidArgument;
    case kNotFoundCode:
      return Code::kNotFound;
    case kPermissionDeniedCode:
    case kUnauthenticatedCode:
      return Code::kPermissionDenied;
    default:
      return {};
  }
}

}  // namespace

EtcdClient::EtcdClient(asio::any_io_executor executor, std::vector<net::Endpoint> endpoints,
                       Access access)
    : endpoints_(std::move(endpoints)),
      access_(std::move(access)),
      connection_(executor, access_.tls),
      limit_(executor),
      pause_(executor) {}

EtcdClient::~EtcdClient() = default;

void EtcdClient::stop() {
  is_stopped_ = true;
  pause_.cancel();
  connection_.close();
}

void EtcdClient::arm(Deadline deadline) {
  is_late_ = false;
  limit_.expires_at(deadline.time());
  limit_.async_wait([weak = weak_from_this(), epoch = ++epoch_](const net::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->epoch_ != epoch) return;
    self->is_late_ = true;
    self->connection_.close();
  });
}

void EtcdClient::disarm() {
  ++epoch_;
  limit_.cancel();
}

net::Task<Result<Bytes>> EtcdClient::call(std::string path, std::string body, Deadline deadline) {
  Status reason;  // failure of the last attempt that the deadline did not cut short
  for (bool was_logged_out = false;;) {
    if (is_stopped_) co_return aborted("the server no longer uses etcd");
    Status failure;
    if (!access_.user.empty() && token_.empty()) failure = co_await log_in(deadline);
    if (failure.ok()) {
      Result<Answer> answer = co_await call_once(path, body, deadline);
      if (answer.ok() && answer->status == 200) {
        report_recovery();
        co_return std::move(answer->body);
      }
      failure = answer.status();
      if (answer.ok()) {
        const Fault fault = parse_fault(answer->body);
        const bool is_logged_out = is_token_refused(fault) && !std::exchange(token_, {}).empty();
        if (is_logged_out && !std::exchange(was_logged_out, true)) continue;
        failure = unavailable(cat("it answered ", answer->status, ": ", fault.message));
        const auto code = final_code(fault);
        if (code && !is_logged_out) {
          failure = Status(*code, advise(fault));
          if (*code != Code::kPermissionDenied) co_return explain(failure);
        }
      }
    }
    if (is_stopped_) continue;
    // An error of TLS, of the user or of its permissions is final at the start. A server that serves a
    // job (no deadline) keeps trying, since the administrator of etcd may correct the error.
    const bool may_pass = failure.code() == Code::kUnavailable || deadline.is_never();
    if (!may_pass) co_return explain(failure);
    if (reason.ok() || !deadline.passed()) reason = failure;
    report_outage(failure, deadline);
    connection_.close();
    current_ = (current_ + 1) % endpoints_.size();
    // Pauses only after each endpoint was tried.
    if (++failures_ % static_cast<int>(endpoints_.size()) == 0) co_await rest(deadline);
    if (deadline.passed()) co_return explain(reason);
  }
}

std::string EtcdClient::advise(const Fault& fault) const {
  const bool is_nobody = access_.user.empty() && contains(fault, kNoUser);
  return cat(fault.message,
             is_nobody ? "; name a file with USER:PASSWORD by --etcd-user-file" : "");
}

net::Task<void> EtcdClient::rest(Deadline deadline) {
  const int doublings = std::min(failures_ / static_cast<int>(endpoints_.size()), 10);
  const milliseconds longest = std::min(kFirstPause * (1 << doublings), kLongestPause);
  std::array<std::byte, 1> random{};
  fill_random(random);
  // Random, from half of the longest pause to all of it.
  const milliseconds chosen = longest / 2 + longest * std::to_integer<int>(random[0]) / 512;
  pause_.expires_at(std::min(deadline.time(), Clock::now() + chosen));
  co_await pause_.async_wait(net::use_tuple);
}

net::Task<Result<EtcdClient::Answer>> EtcdClient::call_once(const std::string& path,
                                                            const std::string& body,
                                                            Deadline deadline) {
  const Deadline attempt = Deadline::after_seconds(kAttempt);
  arm(deadline.time() < attempt.time() ? deadline : attempt);
  Result<Answer> answer = aborted("");
  Status opened;
  if (!connection_.is_open()) opened = co_await connection_.open(endpoints_[current_]);
  if (opened.ok()) {
    const std::string head = head_of(path, body.size());
    answer = co_await connection_.exchange(head, body);
  } else {
    answer = opened;
  }
  disarm();
  if (is_late_) answer = unavailable("it did not answer in time");
  if (!answer.ok()) connection_.close();
  co_return answer;
}

// Gets a token for the user, which later requests carry. kUnavailable: the endpoint failed, as in
// call_once.
net::Task<Status> EtcdClient::log_in(Deadline deadline) {
  const std::string request = login_request(access_.user, access_.password);
  const Result<Answer> answer = co_await call_once("/v3/auth/authenticate", request, deadline);
  if (!answer.ok()) co_return answer.status();
  if (answer->status != 200) {
    const Fault fault = parse_fault(answer->body);
    if (fault.code == kInvalidArgumentCode) {
      co_return permission_denied(cat(fault.message,
                                      "; check the user and the password in "
                                      "--etcd-user-file"));
    }
    if (fault.code == kFailedPreconditionCode) {
      co_return failed_precondition(cat(fault.message, "; leave out --etcd-user-file"));
    }
    co_return unavailable(cat("it answered ", answer->status, ": ", fault.message));
  }
  auto token = parse_login(answer->body);
  if (!token.ok()) co_return token.status();
  token_ = std::move(*token);
  co_return Status();
}

std::string EtcdClient::head_of(const std::string& path, size_t body) const {
  return net::request_head("POST", path,
                           {{"Host", endpoints_[current_].host},
                            {"Content-Type", "application/json"},
                            {"Authorization", token_}},
                           body);
}

void EtcdClient::report_outage(const Status& failure, Deadline deadline) {
  if (failures_ == 0) outage_ = Clock::now();
  if (has_warned_ || Clock::now() - outage_ < kReportAfter) return;
  has_warned_ = true;
  const std::string explained = explain(failure).message();
  if (!deadline.is_never()) {
    log::warning(
        cat(explained, "; it is tried for ", std::lround(deadline.seconds_left()), " s more"));
  } else if (failure.code() == Code::kPermissionDenied) {
    log::warning(cat(explained, "; requests wait until etcd accepts them from ",
                     access_.user.empty() ? "a client without a user"
                                          : cat("user '", printable(access_.user), "'")));
  } else {
    log::warning(cat(explained, "; requests wait until it can be reached"));
  }
}

void EtcdClient::report_recovery() {
  failures_ = 0;
  if (std::exchange(has_warned_, false)) {
    log::warning(
        cat("etcd at ", net::to_string(endpoints_[current_]).substr(4), " serves requests again"));
  }
}

Status EtcdClient::explain(const Status& failure) const {
  std::string list;
  for (const net::Endpoint& endpoint : endpoints_) {
    list += cat(list.empty() ? "" : ",", net::to_string(endpoint).substr(4));  // without "tcp:"
  }
  if (failure.code() == Code::kFailedPrecondition)
    return failure.with_context(cat("etcd at ", list));
  if (failure.code() != Code::kUnavailable) {
    return failure.with_context(cat("etcd at ", list, " refused a request"));
  }
  return unavailable(
      cat("etcd at ", list, " cannot be reached: ", failure.message(),
          "; check that etcd runs there and that --backend names its client port",
          access_.tls ? ", with etcd:// if it has no TLS" : ", with etcds:// if it has TLS"));
}

}  // namespace hvd::rendezvous::etcd
