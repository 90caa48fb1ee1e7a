#include "rendezvous/etcd/etcd_connection.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::rendezvous::etcd {
namespace {

namespace asio = net::asio;

constexpr size_t kConnectionChunk = 64 * 1024;
// The body holds a page of the largest records in base64.
constexpr net::HttpLimits kEtcdLimits{.head_bytes = 16 * 1024, .body_bytes = 64 * 1024 * 1024};

}  // namespace

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
