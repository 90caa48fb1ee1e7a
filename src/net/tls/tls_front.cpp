#include "net/tls/tls_front.h"

#include <array>
#include <deque>

#include "base/text.h"
#include "net/descriptor_share.h"
#include "net/socket_address.h"
#include "net/tls/tls_context.h"

namespace hvd::net {
namespace {

// The reply to a client without TLS; see RFC 2817.
constexpr std::string_view kUpgrade =
    "HTTP/1.1 426 Upgrade Required\r\n"
    "Upgrade: TLS/1.2\r\n"
    "Connection: Upgrade, close\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 44\r\n\r\n"
    "this port accepts only TLS: use https://...\n";

}  // namespace

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

// The handshake of one client.
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

  // Returns true if the client's first bytes are not a TLS record.
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
