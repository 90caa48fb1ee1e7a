#include "rendezvous/client/http_connection.h"

#include <poll.h>

#include <algorithm>

#include "base/text.h"
#include "net/resolve.h"
#include "rendezvous/store/store.h"
#include "rendezvous/wire/target.h"

namespace hvd::rendezvous {
namespace {

bool sooner(Deadline a, Deadline b) { return a.time() < b.time(); }

constexpr size_t kChunk = 16 * 1024;

// Returns whether the server may reply with this status before it knows that the client has the
// secret, and therefore without a signature (PROTOCOL.md, "Signatures").
bool may_be_unsigned(int status) {
  switch (status) {
    case 400:
    case 401:
    case 403:
    case 411:
    case 413:
    case 426:
    case 431:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Backoff::rest(Deadline deadline) {
  const Deadline until = Deadline::after_seconds(pause_ * (0.5 + random_fraction()));
  ::poll(nullptr, 0, std::min(until, deadline, sooner).poll_timeout());
  pause_ = std::min(pause_ * 2, longest_);
}

HttpConnection::HttpConnection(Stream stream, int fd)
    : stream_(std::move(stream)),
      fd_(fd),
      parser_(net::make_response_parser({.body_bytes = kMaxValueBytes})),
      input_(kChunk) {}

Result<std::unique_ptr<HttpConnection>> HttpConnection::open(
    const net::Endpoint& endpoint, const Secret& secret, Deadline deadline,
    const std::optional<net::TlsOptions>& tls) {
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::resolve(endpoint));
  auto stream = net::BlockingStream::connect(addresses, deadline);
  if (!stream.ok()) {
    // kUnavailable lets the caller try again, since the next attempt may succeed or fail for another reason.
    const bool is_late = stream.status().code() == Code::kDeadlineExceeded && deadline.passed();
    return Status(is_late ? Code::kDeadlineExceeded : Code::kUnavailable,
                  stream.status().message());
  }
  const int fd = stream->fd();
  std::unique_ptr<HttpConnection> connection;
  if (tls) {
    HVD_ASSIGN_OR_RETURN(
        auto secured, net::TlsStream::connect(std::move(*stream), endpoint.host, *tls, deadline));
    connection.reset(new HttpConnection(std::move(secured), fd));
  } else {
    connection.reset(new HttpConnection(std::move(*stream), fd));
  }
  HVD_RETURN_IF_ERROR(connection->hello(secret, deadline));
  return connection;
}

Status HttpConnection::hello(const Secret& secret, Deadline deadline) {
  const std::string nonce = make_nonce();
  HVD_RETURN_IF_ERROR(
      send(net::request_head("GET", "/v1/hello", {{"Host", "rendezvous"}, {"Hvd-Nonce", nonce}}, 0),
           {}, deadline));
  HVD_RETURN_IF_ERROR(receive(deadline));
  if (parser_->status() == 426) {
    return failed_precondition("the server accepts only TLS: use https://HOST:PORT");
  }
  const std::string_view answer = parser_->field("Hvd-Nonce");
  if (parser_->status() != 200 || !is_nonce(answer)) {
    return failed_precondition(cat(
        "the program that listens there is not a rendezvous server of this version (it answered ",
        parser_->status(), ")"));
  }
  key_ = std::make_unique<SessionKey>(secret, nonce, answer);
  return {};
}

Result<HttpConnection::Answer> HttpConnection::exchange(std::string_view method,
                                                        std::string_view target, ByteView body,
                                                        Deadline deadline) {
  const Digest digest = body.empty() ? digest_of_nothing() : sha256(body);
  Proof proof{++count_, digest, key_->sign_request(count_, method, target, digest)};
  const Status sent = send(
      net::request_head(method, target,
                        {{"Host", "rendezvous"}, {"Authorization", to_string(proof)}}, body.size()),
      body, deadline);
  // A server may refuse and close while the request is being sent: read its reply.
  if (!sent.ok() && sent.code() != Code::kUnavailable) return sent;
  if (const Status received = receive(deadline); !received.ok()) {
    return sent.ok() ? received : sent;
  }
  Answer answer{parser_->status(), parser_->take_body()};
  const auto signature = parse_digest(parser_->field("Hvd-Signature"));
  if (!signature.ok()) {
    if (!may_be_unsigned(answer.status)) {
      return permission_denied(cat("the answer of status ", answer.status,
                                   " is not signed: the server may not have sent it"));
    }
    return Status(from_http(answer.status), printable(as_text(answer.body), 500));
  }
  const Digest wanted = key_->sign_response(count_, answer.status, sha256(answer.body));
  if (!equal_in_constant_time(wanted, *signature)) {
    return permission_denied("the server does not know the secret of this job");
  }
  is_closed_ = !parser_->keep_alive();
  return answer;
}

Status HttpConnection::send(std::string_view head, ByteView body, Deadline deadline) {
  bool interrupted = false;
  return std::visit(
      [&](auto& stream) { return stream.write(as_bytes(head), body, deadline, interrupted); },
      stream_);
}

Status HttpConnection::receive(Deadline deadline) {
  parser_->reset();
  while (!parser_->done()) {
    const auto consumed = parser_->feed(ByteView(input_).subspan(begin_, end_ - begin_));
    if (!consumed.ok()) return failed_precondition(consumed.status().message());
    begin_ += *consumed;
    if (parser_->done()) break;
    if (*consumed > 0 && begin_ < end_) continue;
    std::copy(input_.begin() + static_cast<std::ptrdiff_t>(begin_),
              input_.begin() + static_cast<std::ptrdiff_t>(end_), input_.begin());
    end_ -= begin_;
    begin_ = 0;
    if (input_.size() - end_ < kChunk) input_.resize(end_ + kChunk);
    HVD_ASSIGN_OR_RETURN(const size_t size, std::visit(
                                                [&](auto& stream) {
                                                  return stream.read_some(
                                                      std::span(input_).subspan(end_), deadline);
                                                },
                                                stream_));
    if (size == 0) return unavailable("the server closed the connection");
    end_ += size;
  }
  return {};
}

}  // namespace hvd::rendezvous
