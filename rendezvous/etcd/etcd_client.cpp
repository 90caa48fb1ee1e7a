#include "rendezvous/etcd/etcd_client.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "net/socket_address.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {
namespace {

namespace asio = net::asio;
using std::chrono::milliseconds;

// Of one attempt on one endpoint.
constexpr double kAttempt = 5;
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{1000};
// Shorter ones are nobody's business: a leader is elected, a server restarts.
constexpr milliseconds kWorthTelling{2000};
constexpr size_t kChunk = 64 * 1024;
// A page of the largest records, in base64.
constexpr net::HttpLimits kLimits{.head_bytes = 16 * 1024, .body_bytes = 64 * 1024 * 1024};

// Of gRPC.
constexpr int kInvalidArgumentCode = 3;
constexpr int kNotFoundCode = 5;
constexpr int kPermissionDeniedCode = 7;
constexpr int kUnauthenticatedCode = 16;

// What another endpoint, or the same one later, would refuse as well; other faults pass.
std::optional<Code> final_code(const Fault& fault) {
  switch (fault.code) {
    case kInvalidArgumentCode: return Code::kInvalidArgument;
    case kNotFoundCode: return Code::kNotFound;
    case kPermissionDeniedCode:
    case kUnauthenticatedCode: return Code::kPermissionDenied;
    default: return {};
  }
}

}  // namespace

EtcdClient::EtcdClient(asio::any_io_executor executor, std::vector<net::Endpoint> endpoints)
    : endpoints_(std::move(endpoints)),
      resolver_(executor),
      socket_(executor),
      limit_(executor),
      pause_(executor),
      parser_(net::make_response_parser(kLimits)) {}

EtcdClient::~EtcdClient() = default;

void EtcdClient::stop() {
  is_stopped_ = true;
  pause_.cancel();
  resolver_.cancel();
  drop();
}

void EtcdClient::drop() {
  net::error_code ignored;
  socket_.close(ignored);
  is_connected_ = false;
}

void EtcdClient::arm(Deadline deadline) {
  is_late_ = false;
  limit_.expires_at(deadline.time());
  limit_.async_wait([weak = weak_from_this(), epoch = ++epoch_](const net::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->epoch_ != epoch) return;
    self->is_late_ = true;
    self->resolver_.cancel();
    self->drop();
  });
}

void EtcdClient::disarm() {
  ++epoch_;
  limit_.cancel();
}

net::Task<Result<Bytes>> EtcdClient::call(std::string path, std::string body, Deadline deadline) {
  Status reason;  // of the last attempt that was not cut short
  for (;;) {
    if (is_stopped_) co_return aborted("the server no longer uses etcd");
    Result<Answer> answer = co_await call_once(path, body, deadline);
    if (answer.ok() && answer->status == 200) {
      tell_of_end();
      co_return std::move(answer->body);
    }
    Status failure = answer.status();
    if (answer.ok()) {
      const Fault fault = parse_fault(answer->body);
      failure = unavailable(cat("it answered ", answer->status, ": ", fault.message));
      if (const auto code = final_code(fault)) co_return explain(Status(*code, fault.message));
    }
    if (is_stopped_) continue;
    if (reason.ok() || !deadline.passed()) reason = failure;
    tell_of_outage(failure, deadline);
    drop();
    current_ = (current_ + 1) % endpoints_.size();
    // Each endpoint once before any has a second chance.
    if (++failures_ % static_cast<int>(endpoints_.size()) == 0) co_await rest(deadline);
    if (deadline.passed()) co_return explain(reason);
  }
}

net::Task<void> EtcdClient::rest(Deadline deadline) {
  const int doublings = std::min(failures_ / static_cast<int>(endpoints_.size()), 10);
  const milliseconds longest = std::min(kFirstPause * (1 << doublings), kLongestPause);
  std::array<std::byte, 1> random{};
  fill_random(random);
  // From half of it to all.
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
  Status connected;
  if (!is_connected_) connected = co_await connect();
  if (connected.ok()) {
    const std::string head = head_of(path, body.size());
    const std::array<asio::const_buffer, 2> parts{asio::buffer(head), asio::buffer(body)};
    const auto [error, sent] = co_await asio::async_write(socket_, parts, net::use_tuple);
    if (error) {
      answer = unavailable(cat("the request could not be sent: ", error.message()));
    } else {
      answer = co_await receive();
    }
  } else {
    answer = connected;
  }
  disarm();
  if (is_late_) answer = unavailable("it did not answer in time");
  if (!answer.ok() || !parser_->keep_alive()) drop();
  co_return answer;
}

std::string EtcdClient::head_of(const std::string& path, size_t body) const {
  return net::request_head(
      "POST", path, {{"Host", endpoints_[current_].host}, {"Content-Type", "application/json"}},
      body);
}

net::Task<Status> EtcdClient::connect() {
  drop();
  const net::Endpoint& endpoint = endpoints_[current_];
  const auto [unresolved, addresses] = co_await resolver_.async_resolve(
      endpoint.host, std::to_string(endpoint.port), net::use_tuple);
  if (unresolved) co_return unavailable(unresolved.message());
  const auto [error, address] = co_await asio::async_connect(socket_, addresses, net::use_tuple);
  if (error) co_return unavailable(error.message());
  net::tune_connection(socket_.native_handle());
  is_connected_ = true;
  co_return Status();
}

net::Task<Result<EtcdClient::Answer>> EtcdClient::receive() {
  parser_->reset();
  size_t size = 0;
  while (!parser_->done()) {
    if (input_.size() - size < kChunk) input_.resize(size + kChunk);
    const auto [error, read] = co_await socket_.async_read_some(
        asio::buffer(input_.data() + size, input_.size() - size), net::use_tuple);
    if (error) co_return unavailable(cat("the connection was lost: ", error.message()));
    size += read;
    size_t consumed = 0;
    for (size_t last = 1; last > 0 && !parser_->done(); consumed += last) {
      const auto fed = parser_->feed(ByteView(input_).subspan(consumed, size - consumed));
      if (!fed.ok()) co_return unavailable(fed.status().message());
      last = *fed;
    }
    std::copy(input_.begin() + static_cast<std::ptrdiff_t>(consumed),
              input_.begin() + static_cast<std::ptrdiff_t>(size), input_.begin());
    size -= consumed;
  }
  if (size > 0) co_return unavailable("it answered more than it was asked");
  Answer answer;
  answer.status = parser_->status();
  answer.body = parser_->take_body();
  co_return answer;
}

void EtcdClient::tell_of_outage(const Status& failure, Deadline deadline) {
  if (failures_ == 0) outage_ = Clock::now();
  if (is_told_ || Clock::now() - outage_ < kWorthTelling) return;
  is_told_ = true;
  log::warning(cat(explain(failure).message(),
                   deadline.is_never()
                       ? std::string("; requests wait until it can be reached")
                       : cat("; it is tried for ", std::lround(deadline.seconds_left()), " s more")));
}

void EtcdClient::tell_of_end() {
  failures_ = 0;
  if (std::exchange(is_told_, false)) {
    log::warning(cat("etcd at ", net::to_string(endpoints_[current_]).substr(4),
                     " is reached again"));
  }
}

Status EtcdClient::explain(const Status& failure) const {
  std::string list;
  for (const net::Endpoint& endpoint : endpoints_) {
    list += cat(list.empty() ? "" : ",", net::to_string(endpoint).substr(4));  // without "tcp:"
  }
  if (failure.code() != Code::kUnavailable) {
    return failure.with_context(cat("etcd at ", list, " refused a request"));
  }
  return unavailable(cat("etcd at ", list, " cannot be reached: ", failure.message(),
                         "; check that etcd runs there and that --backend names its client port"));
}

}  // namespace hvd::rendezvous::etcd
