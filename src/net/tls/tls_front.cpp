#include "net/tls/tls_front.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "base/limits/descriptor_limit.h"
#include "base/text.h"
#include "net/socket_address.h"
#include "net/tls/tls_context.h"
#include "net/tls/tls_session.h"

namespace hvd::net {
namespace {

constexpr size_t kFirstInput = 4096;
constexpr size_t kMostInput = 64 * 1024;
// Maximum number of bytes that are encrypted and sent at once.
constexpr size_t kPiece = 64 * 1024;

bool would_block(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

ByteView view_of(asio::const_buffer buffer) {
  return {static_cast<const std::byte*>(buffer.data()), buffer.size()};
}

// The reply to a client without TLS; see RFC 2817.
constexpr std::string_view kUpgrade =
    "HTTP/1.1 426 Upgrade Required\r\n"
    "Upgrade: TLS/1.2\r\n"
    "Connection: Upgrade, close\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 44\r\n\r\n"
    "this port accepts only TLS: use https://...\n";

}  // namespace

struct AcceptedSocket::Tls {
  TlsSession session;
  std::function<void()> on_altered;
  Bytes input = Bytes(kFirstInput);  // bytes from the socket; grows with the traffic
  Bytes output = {};                 // encrypted bytes; the socket has accepted output_sent of them
  size_t output_sent = 0;
  size_t in_output = 0;  // the caller's bytes that are in `output`
  Bytes piece = {};
};

AcceptedSocket::AcceptedSocket(StreamSocket socket) : AcceptedSocket(std::move(socket), nullptr) {}

AcceptedSocket::AcceptedSocket(StreamSocket socket, std::unique_ptr<Tls> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)) {
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

Result<AcceptedSocket> AcceptedSocket::with_tls(StreamSocket socket, ssl_ctx_st* context,
                                                std::function<void()> on_altered) {
  HVD_ASSIGN_OR_RETURN(TlsSession session, TlsSession::server(context));
  return AcceptedSocket(std::move(socket),
                        std::make_unique<Tls>(Tls{std::move(session), std::move(on_altered)}));
}

AcceptedSocket::AcceptedSocket(AcceptedSocket&&) noexcept = default;
AcceptedSocket::~AcceptedSocket() = default;

Task<Status> AcceptedSocket::shake_hands() {
  for (;;) {
    const auto is_done = tls_->session.shake_hands();
    Status sent = co_await send_output();  // sends alerts too
    if (!is_done.ok()) co_return is_done.status();
    if (!sent.ok() || *is_done) co_return sent;
    const auto [error, size] =
        co_await socket_.async_read_some(asio::buffer(tls_->input), use_tuple);
    if (error) co_return to_status("the TLS handshake", error);
    take_input(size);
  }
}

// Sends as many encrypted bytes as the socket accepts without waiting. Returns whether it has accepted all.
bool AcceptedSocket::flush(error_code& error) {
  Bytes more = tls_->session.take_output();
  if (tls_->output.empty()) {
    tls_->output = std::move(more);
  } else {
    tls_->output.insert(tls_->output.end(), more.begin(), more.end());
  }
  while (tls_->output_sent < tls_->output.size()) {
    tls_->output_sent += socket_.write_some(asio::buffer(tls_->output) + tls_->output_sent, error);
    if (error) return false;
  }
  tls_->output.clear();
  tls_->output_sent = 0;
  return true;
}

Task<Status> AcceptedSocket::send_output() {
  for (;;) {
    error_code error;
    if (flush(error)) co_return Status();
    if (would_block(error)) {
      std::tie(error) = co_await socket_.async_wait(StreamSocket::wait_write, use_tuple);
    }
    if (error) co_return to_status("the connection", error);
  }
}

// Decrypts received bytes. Returns nullopt if further bytes must arrive first.
std::optional<AcceptedSocket::Done> AcceptedSocket::decrypt(asio::mutable_buffer buffer) {
  const auto size = tls_->session.read({static_cast<std::byte*>(buffer.data()), buffer.size()});
  error_code ignored;
  flush(ignored);  // the session may have to reply to the peer
  if (!size.ok()) {
    if (tls_->on_altered) std::exchange(tls_->on_altered, nullptr)();
    return Done(make_error_code(boost::system::errc::bad_message), 0);
  }
  if (!*size) return {};
  return Done(**size == 0 ? error_code(asio::error::eof) : error_code(), **size);
}

Task<AcceptedSocket::Done> AcceptedSocket::read_some(asio::mutable_buffer buffer) {
  return tls_ ? read_tls(buffer) : socket_.async_read_some(buffer, use_tuple);
}

Task<AcceptedSocket::Done> AcceptedSocket::read_tls(asio::mutable_buffer buffer) {
  for (;;) {
    if (const auto done = decrypt(buffer)) co_return *done;
    const auto [error, size] =
        co_await socket_.async_read_some(asio::buffer(tls_->input), use_tuple);
    if (error) co_return Done(error, 0);
    take_input(size);
  }
}

size_t AcceptedSocket::try_read(asio::mutable_buffer buffer, error_code& error) {
  if (!tls_) return socket_.read_some(buffer, error);
  for (;;) {
    if (const auto done = decrypt(buffer)) {
      error = std::get<error_code>(*done);
      return std::get<size_t>(*done);
    }
    const size_t size = socket_.read_some(asio::buffer(tls_->input), error);
    if (error) return 0;
    take_input(size);
  }
}

void AcceptedSocket::take_input(size_t size) {
  tls_->session.feed(ByteView(tls_->input).first(size));
  if (size == tls_->input.size() && size < kMostInput) tls_->input.resize(2 * size);
}

Task<AcceptedSocket::Done> AcceptedSocket::write(asio::const_buffer head, asio::const_buffer body) {
  if (tls_) return write_tls(head, body);
  if (body.size() == 0) return asio::async_write(socket_, head, use_tuple);
  return asio::async_write(socket_, std::array{head, body}, use_tuple);
}

size_t AcceptedSocket::try_write(asio::const_buffer head, asio::const_buffer body,
                                 error_code& error) {
  if (tls_) return try_write_tls(head, body, error);
  if (body.size() == 0) return socket_.write_some(head, error);
  return socket_.write_some(std::array{head, body}, error);
}

Task<AcceptedSocket::Done> AcceptedSocket::write_tls(asio::const_buffer head,
                                                     asio::const_buffer body) {
  for (size_t sent = 0;;) {
    error_code error;
    const size_t size = try_write_tls(head, body, error);
    sent += size;
    if (would_block(error)) {
      std::tie(error) = co_await socket_.async_wait(StreamSocket::wait_write, use_tuple);
    } else if (!error) {
      co_return Done(error, sent);
    }
    if (error) co_return Done(error, sent);
    const size_t of_head = std::min(size, head.size());
    head += of_head;
    body += size - of_head;
  }
}

// Encrypts a piece only after the socket has accepted the previous one, so that a slow reader does
// not increase memory use.
size_t AcceptedSocket::try_write_tls(asio::const_buffer head, asio::const_buffer body,
                                     error_code& error) {
  error = {};
  if (!flush(error)) return 0;
  const size_t size = head.size() + body.size();
  size_t sent = std::exchange(tls_->in_output, 0);
  while (sent < size) {
    const ByteView piece = next_piece(head, body, sent);
    if (!tls_->session.write(piece).ok()) {
      error = make_error_code(boost::system::errc::protocol_error);
      return sent;
    }
    if (!flush(error)) {
      tls_->in_output = piece.size();
      return sent;
    }
    sent += piece.size();
  }
  return sent;
}

// Joins head and body, because one record and one system call take less time than two.
ByteView AcceptedSocket::next_piece(asio::const_buffer head, asio::const_buffer body, size_t sent) {
  const size_t of_head = std::min(sent, head.size());
  const ByteView first = view_of(head + of_head);
  const ByteView second = view_of(body + (sent - of_head));
  if (first.empty()) return second.first(std::min(second.size(), kPiece));
  if (second.empty() || first.size() >= kPiece) return first.first(std::min(first.size(), kPiece));
  const ByteView more = second.first(std::min(second.size(), kPiece - first.size()));
  tls_->piece.assign(first.begin(), first.end());
  tls_->piece.insert(tls_->piece.end(), more.begin(), more.end());
  return tls_->piece;
}

// Ends the TLS stream, and sends as many of its last bytes as the socket accepts without waiting.
void AcceptedSocket::end_tls() {
  if (!tls_) return;
  tls_->session.end();
  error_code ignored;
  flush(ignored);
}

void AcceptedSocket::shutdown_send() {
  end_tls();
  error_code ignored;
  socket_.shutdown(StreamSocket::shutdown_send, ignored);
}

void AcceptedSocket::cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void AcceptedSocket::close() {
  end_tls();
  error_code ignored;
  socket_.close(ignored);
}

class TlsHandshake;

struct TlsServerContext {
  bool has_certificate() const { return !options.certificate.empty(); }

  Status open() {
    SSL_CTX* server = context.get();
    if (server == nullptr) return internal_error(cat("TLS: ", last_tls_error()));
    ::SSL_CTX_set_min_proto_version(server, TLS1_2_VERSION);
    ::SSL_CTX_set_mode(server, SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_num_tickets(server, 0);  // clients cannot resume sessions
    if (has_certificate()) {
      const Status loaded = use_certificate(server, options.certificate);
      if (!loaded.ok()) return loaded.with_context("--tls-cert");
      const Status has_key = use_key(server, options.key, options.certificate);
      if (!has_key.ok()) return has_key.with_context("--tls-key");
    }
    const auto& key = options.shared_key;
    if (!key || accept_shared_key(server, *key, !has_certificate())) return {};
    return internal_error("TLS: OpenSSL does not accept the shared key");
  }

  TlsContext context{::SSL_CTX_new(::TLS_server_method())};
  TlsServerOptions options;
  std::deque<std::weak_ptr<TlsHandshake>> unproven;  // the oldest handshake first
};

class TlsHandshake : public std::enable_shared_from_this<TlsHandshake> {
 public:
  TlsHandshake(StreamSocket socket, std::shared_ptr<TlsServerContext> server)
      : server_(std::move(server)),
        peer_(peer_text(socket.native_handle())),
        socket_(std::move(socket)),
        limit_(socket_.get_executor(), server_->options.limits.handshake) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  Task<void> run(TlsFront::Adopt adopt) {
    limit_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->end();
    });
    if (co_await is_plaintext()) {
      if (server_->has_certificate()) co_return co_await refuse_plaintext();
      co_return pass_on(adopt, std::move(socket_));
    }
    auto stream = AcceptedSocket::with_tls(
        std::move(socket_), server_->context.get(),
        [server = server_, peer = peer_] { notify(server->options.on_altered, peer); });
    if (!stream.ok()) co_return;
    encrypted_ = &*stream;
    const Status status = co_await stream->shake_hands();
    encrypted_ = nullptr;
    if (status.code() == Code::kPermissionDenied) notify(server_->options.on_other_key, peer_);
    if (status.ok()) pass_on(adopt, std::move(*stream));
  }

  void end() {
    error_code ignored;
    if (encrypted_ != nullptr) return encrypted_->close();
    socket_.close(ignored);
  }

 private:
  static void notify(const std::function<void(const std::string&)>& listener,
                     const std::string& peer) {
    if (listener) listener(peer);
  }

  void pass_on(const TlsFront::Adopt& adopt, AcceptedSocket socket) {
    limit_.cancel();
    adopt(std::move(socket));
  }

  // Returns true if the client's first byte does not begin a TLS handshake.
  Task<bool> is_plaintext() {
    constexpr std::byte kHandshake{22};
    co_await socket_.async_wait(StreamSocket::wait_read, use_tuple);
    std::byte first = kHandshake;
    error_code ignored;
    socket_.receive(asio::buffer(&first, 1), asio::socket_base::message_peek, ignored);
    co_return first != kHandshake;
  }

  // Replies, and then reads and drops the bytes that the client still sends: closing at once would reset
  // the connection, and the client would lose the reply.
  Task<void> refuse_plaintext() {
    co_await asio::async_write(socket_, asio::buffer(kUpgrade), use_tuple);
    error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_send, ignored);
    std::array<std::byte, 4096> buffer;
    for (;;) {
      const auto [error, size] = co_await socket_.async_read_some(asio::buffer(buffer), use_tuple);
      if (error) co_return;
    }
  }

  const std::shared_ptr<TlsServerContext> server_;
  const std::string peer_;
  StreamSocket socket_;  // valid until TLS begins
  AcceptedSocket* encrypted_ = nullptr;
  asio::steady_timer limit_;
};

Result<TlsFront> TlsFront::make(TlsServerOptions options) {
  auto server = std::make_shared<TlsServerContext>();
  server->options = std::move(options);
  HVD_RETURN_IF_ERROR(server->open());
  return TlsFront(std::move(server));
}

void TlsFront::take(StreamSocket socket, Adopt adopt) const {
  auto& unproven = server_->unproven;
  std::erase_if(unproven, [](const auto& handshake) { return handshake.expired(); });
  if (unproven.size() >= descriptor_share(server_->options.limits.unproven)) {
    // End the oldest handshake, which has had the most time.
    unproven.front().lock()->end();
    unproven.pop_front();
  }
  const auto executor = socket.get_executor();
  const auto handshake = std::make_shared<TlsHandshake>(std::move(socket), server_);
  unproven.push_back(handshake);
  asio::co_spawn(executor, handshake->run(std::move(adopt)),
                 [handshake](const std::exception_ptr&) {});
}

}  // namespace hvd::net
