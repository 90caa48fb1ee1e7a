#include "launcher/observe/metrics_server.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/metrics/metrics_text.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/observe/parts.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

constexpr std::chrono::seconds kFresh{1};
constexpr std::chrono::milliseconds kPause{100};
constexpr double kSecondsToEnd = 1;
constexpr size_t kMostHead = 8 << 10;
constexpr std::string_view kPrometheus = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kOpenMetrics =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

}  // namespace

struct MetricsServer::Connection {
  explicit Connection(net::AcceptedSocket accepted)
      : socket(std::move(accepted)), limit(socket.get_executor()) {}
  net::AcceptedSocket socket;
  asio::steady_timer limit;
};

MetricsServer::MetricsServer(asio::any_io_executor executor, const MetricsPort* port, Text text,
                             MetricsServerLimits limits)
    : executor_(std::move(executor)),
      port_(port),
      text_(std::move(text)),
      limits_(limits),
      acceptor_(executor_),
      pause_(executor_),
      changed_(executor_) {}

MetricsServer::MetricsServer(PartLaunch& launch)
    : MetricsServer(launch.executor(), launch.events().metrics,
                    [&launch] { return launch.inspector().metrics(); }) {}

void MetricsServer::on(const JobEvent& event) {
  if (port_ != nullptr && std::holds_alternative<Starting>(event)) open();
}

void MetricsServer::open() {
  // Duplicate the descriptor, because the next launch listens on the same socket.
  UniqueFd listener(::fcntl(port_->listener().get(), F_DUPFD_CLOEXEC, 0));
  const auto local = net::local_address(port_->listener().get());
  net::error_code error;
  if (listener && local.ok()) {
    acceptor_.assign(asio::generic::stream_protocol(local->family(), 0), listener.get(), error);
    if (!error) static_cast<void>(listener.release());
  }
  if (acceptor_.is_open()) asio::co_spawn(executor_, accept(self()), asio::detached);
}

net::Task<void> MetricsServer::accept(std::shared_ptr<MetricsServer> self) {
  while (self->acceptor_.is_open()) {
    auto [error, socket] = co_await self->acceptor_.async_accept(net::use_tuple);
    if (!error) {
      ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
      if (!self->port_->is_protected()) {
        self->take(std::move(socket));
        continue;
      }
      self->port_->tls()->take(std::move(socket), [weak = std::weak_ptr<MetricsServer>(self)](
                                                      net::AcceptedSocket accepted) {
        if (const auto server = weak.lock()) server->take(std::move(accepted));
      });
    } else if (self->acceptor_.is_open()) {
      // accept() fails, for example, while the process has no free descriptor.
      self->pause_.expires_after(kPause);
      co_await self->pause_.async_wait(net::use_tuple);
    }
  }
}

void MetricsServer::take(net::AcceptedSocket socket) {
  if (is_over_ || socket.is_encrypted() != port_->is_protected()) return;
  std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
  if (connections_.size() >= limits_.connections) {
    if (const auto oldest = connections_.front().lock()) oldest->socket.close();
    connections_.pop_front();
  }
  auto connection = std::make_shared<Connection>(std::move(socket));
  connections_.push_back(connection);
  connection->limit.expires_after(limits_.connection);
  connection->limit.async_wait(
      [weak = std::weak_ptr<Connection>(connection)](const net::error_code& error) {
        const auto late = weak.lock();
        if (!error && late) late->socket.close();
      });
  ++running_;
  asio::co_spawn(executor_, serve(self(), std::move(connection)), asio::detached);
}

net::Task<void> MetricsServer::serve(std::shared_ptr<MetricsServer> self,
                                     std::shared_ptr<Connection> connection) {
  const auto reply = co_await self->answer(*connection);
  if (reply && !self->is_over_) {
    const std::string head =
        net::response_head(reply->status, {{"Content-Type", reply->type}, {"Connection", "close"}},
                           reply->text.size());
    const std::string_view body = reply->has_body ? std::string_view(reply->text) : "";
    co_await connection->socket.write(asio::buffer(head), asio::buffer(body));
    // If the client has sent more data, an immediate close would reset the connection and lose the reply.
    connection->socket.shutdown_send();
    for (std::array<std::byte, 1024> rest; !self->is_over_;) {
      const auto [error, size] = co_await connection->socket.read_some(asio::buffer(rest));
      if (error || size == 0) break;
    }
  }
  connection->limit.cancel();
  --self->running_;
  if (self->is_over_) self->pause_.cancel();  // end() waits for this pause
}

// Returns the reply to a request, or nothing if the client disconnects before its request.
net::Task<std::optional<MetricsServer::Reply>> MetricsServer::answer(Connection& connection) {
  const auto request = net::make_request_parser({.head_bytes = kMostHead, .body_bytes = 0});
  std::array<std::byte, kMostHead> input;
  size_t held = 0;
  for (;;) {
    const auto consumed = request->feed(ByteView(input).first(held));
    if (!consumed.ok()) co_return Reply{request->fault(), consumed.status().message() + "\n"};
    if (request->head_done()) break;
    std::copy(input.begin() + static_cast<ptrdiff_t>(*consumed),
              input.begin() + static_cast<ptrdiff_t>(held), input.begin());
    held -= *consumed;
    if (held == input.size()) co_return Reply{431, "the head of the request is too large\n"};
    const auto [error, size] = co_await connection.socket.read_some(
        asio::buffer(input.data() + held, input.size() - held));
    if (error || size == 0) co_return std::nullopt;
    held += size;
  }
  Reply reply = co_await reply_to(*request);
  reply.has_body = request->method() != "HEAD";
  co_return reply;
}

net::Task<MetricsServer::Reply> MetricsServer::reply_to(const net::HttpRequestParser& request) {
  if (request.method() != "GET" && request.method() != "HEAD")
    co_return Reply{405, "this port supports only GET and HEAD\n"};
  if (!port_->answers_to(request.field("Host")))
    co_return Reply{421, "this port is asked for by localhost or 127.0.0.1\n"};
  const std::string_view path = request.target().substr(0, request.target().find('?'));
  // /healthz needs no token: the existence of the job is not secret.
  if (path == "/healthz") co_return Reply{200, "ok\n"};
  if (port_->is_protected()) {
    const std::string wanted = cat("Bearer ", port_->token());
    const std::string_view given = request.field("Authorization");
    if (port_->token().empty() || !equal_in_constant_time(as_bytes(wanted), as_bytes(given))) {
      co_return Reply{401,
                      "give 'Authorization: Bearer <token>' with the token that horovod-rendezvous "
                      "--show-monitor-token prints\n"};
    }
  }
  if (path != "/metrics") co_return Reply{404, "this port has /metrics and /healthz\n"};
  const bool is_open =
      request.field("Accept").find("application/openmetrics-text") != std::string_view::npos;
  std::string text = co_await recent_text();
  if (is_open) co_return Reply{200, open_metrics_text(text), kOpenMetrics};
  co_return Reply{200, std::move(text), kPrometheus};
}

net::Task<std::string> MetricsServer::recent_text() {
  while (is_asking_ && !is_over_) co_await changed_.wait();
  if (Clock::now() >= valid_until_ && !is_over_) {
    is_asking_ = true;
    recent_ = co_await text_();
    valid_until_ = Clock::now() + kFresh;
    is_asking_ = false;
    changed_.notify();
  }
  co_return recent_;
}

net::Task<void> MetricsServer::end() {
  is_over_ = true;
  if (port_ == nullptr) co_return;
  net::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (const auto& weak : connections_) {
    if (const auto connection = weak.lock()) connection->socket.close();
  }
  changed_.notify();
  const Deadline end = Deadline::after_seconds(kSecondsToEnd);
  while (running_ > 0 && !end.passed()) {
    pause_.expires_at(end.time());
    co_await pause_.async_wait(net::use_tuple);
  }
}

std::shared_ptr<JobPart> metrics_server(PartLaunch& launch) {
  return std::make_shared<MetricsServer>(launch);
}

}  // namespace hvd::launcher
