#include "rendezvous/etcd/etcd_client.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::rendezvous::etcd {

namespace {

namespace asio = net::asio;
using std::chrono::milliseconds;

constexpr size_t kConnectionChunk = 64 * 1024;
// body_bytes is enough for a page of the largest records in base64.
constexpr net::HttpLimits kEtcdLimits{.head_bytes = 16 * 1024, .body_bytes = 64 * 1024 * 1024};

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

// etcd sends these two messages with the code kInvalidArgumentCode.
constexpr std::string_view kOldToken = "revision of auth store is old";
constexpr std::string_view kNoUser = "user name is empty";

bool contains(const Fault& fault, std::string_view words) {
  return fault.message.find(words) != std::string::npos;
}

// Returns whether the token has expired, or etcd's users or roles have changed since it was issued.
bool is_token_refused(const Fault& fault) {
  return fault.code == kUnauthenticatedCode || contains(fault, kOldToken);
}

// Returns the code of a fault that every endpoint would repeat; nullopt for a temporary fault.
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
    // An error of TLS, user or permissions is final at the start. A server that already serves a job (no
    // deadline) keeps trying, since the administrator of etcd may correct the error.
    const bool may_pass = failure.code() == Code::kUnavailable || deadline.is_never();
    if (!may_pass) co_return explain(failure);
    if (reason.ok() || !deadline.passed()) reason = failure;
    report_outage(failure, deadline);
    connection_.close();
    current_ = (current_ + 1) % endpoints_.size();
    // Pauses only after trying each endpoint.
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
  // Add a random part, so that several servers do not try at the same moment.
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

// Gets a token for the user. Later requests carry the token. kUnavailable: the endpoint failed, as in call_once.
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

EtcdConnection::EtcdConnection(asio::any_io_executor executor, std::optional<net::TlsOptions> tls)
    : tls_(std::move(tls)),
      resolver_(executor),
      socket_(executor),
      parser_(net::make_response_parser(kEtcdLimits)) {}

void EtcdConnection::close() {
  resolver_.cancel();
  net::error_code ignored;
  socket_.close(ignored);
  is_open_ = false;
}

net::Task<Status> EtcdConnection::open(const net::Endpoint& endpoint) {
  close();
  const auto [unresolved, addresses] = co_await resolver_.async_resolve(
      endpoint.host, std::to_string(endpoint.port), net::use_tuple);
  if (unresolved) co_return unavailable(unresolved.message());
  const auto [error, address] = co_await asio::async_connect(socket_, addresses, net::use_tuple);
  if (error) co_return unavailable(error.message());
  net::tune_connection(socket_.native_handle());
  size_ = 0;
  session_.reset();
  if (tls_) {
    const Status status = co_await shake_hands(endpoint.host);
    if (!status.ok()) co_return status;
  }
  is_open_ = true;
  co_return Status();
}

net::Task<Status> EtcdConnection::shake_hands(const std::string& host) {
  auto session = net::TlsSession::client(host, *tls_);
  if (!session.ok()) co_return session.status();
  session_.emplace(std::move(*session));
  for (;;) {
    const auto is_done = session_->shake_hands();
    const Bytes output = session_->take_output();  // after a failure, the alert for the peer
    const auto [failed, sent] =
        co_await asio::async_write(socket_, asio::buffer(output), net::use_tuple);
    if (!is_done.ok()) co_return is_done.status();
    if (failed) co_return unavailable(cat("the TLS handshake failed: ", failed.message()));
    if (*is_done) co_return Status();
    const Status status = co_await take_in();
    if (!status.ok()) co_return status;
  }
}

net::Task<Result<EtcdConnection::Answer>> EtcdConnection::exchange(const std::string& head,
                                                                   const std::string& body) {
  const Status sent = co_await send(head, body);
  if (!sent.ok()) {
    close();
    co_return sent;
  }
  Result<Answer> answer = co_await receive();
  if (!answer.ok() || !parser_->keep_alive()) close();
  co_return answer;
}

net::Task<Status> EtcdConnection::send(const std::string& head, const std::string& body) {
  Bytes sealed;
  std::array<asio::const_buffer, 2> parts{asio::buffer(head), asio::buffer(body)};
  if (session_) {
    Status status = session_->write(as_bytes(head));
    if (status.ok()) status = session_->write(as_bytes(body));
    if (!status.ok()) co_return status;
    sealed = session_->take_output();
    parts = {asio::buffer(sealed), asio::const_buffer()};
  }
  const auto [error, sent] = co_await asio::async_write(socket_, parts, net::use_tuple);
  if (error) co_return unavailable(cat("the request could not be sent: ", error.message()));
  co_return Status();
}

// Reads once from the socket: without TLS into input_, with TLS into the session, which may need more
// before it has a byte of HTTP.
net::Task<Status> EtcdConnection::take_in() {
  if (input_.size() - size_ < kConnectionChunk) input_.resize(size_ + kConnectionChunk);
  const auto [error, read] = co_await socket_.async_read_some(
      asio::buffer(input_.data() + size_, input_.size() - size_), net::use_tuple);
  if (error) co_return unavailable(cat("the connection was lost: ", error.message()));
  if (!session_) {
    size_ += read;
    co_return Status();
  }
  session_->feed(ByteView(input_).subspan(size_, read));
  co_return Status();
}

net::Task<Result<EtcdConnection::Answer>> EtcdConnection::receive() {
  parser_->reset();
  size_ = 0;
  while (!parser_->done()) {
    const Status taken = co_await take_in();
    if (!taken.ok()) co_return taken;
    while (session_) {
      if (input_.size() - size_ < kConnectionChunk) input_.resize(size_ + kConnectionChunk);
      const auto read = session_->read(std::span(input_).subspan(size_));
      if (!read.ok()) co_return read.status();
      if (!*read) break;
      if (**read == 0) co_return unavailable("the connection was lost: end of file");
      size_ += **read;
    }
    size_t consumed = 0;
    for (size_t last = 1; last > 0 && !parser_->done(); consumed += last) {
      const auto fed = parser_->feed(ByteView(input_).subspan(consumed, size_ - consumed));
      if (!fed.ok()) co_return unavailable(fed.status().message());
      last = *fed;
    }
    std::copy(input_.begin() + static_cast<std::ptrdiff_t>(consumed),
              input_.begin() + static_cast<std::ptrdiff_t>(size_), input_.begin());
    size_ -= consumed;
  }
  if (size_ > 0) co_return unavailable("it sent data that was not requested");
  Answer answer;
  answer.status = parser_->status();
  answer.body = parser_->take_body();
  co_return answer;
}

}  // namespace hvd::rendezvous::etcd
