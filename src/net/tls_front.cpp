#include "net/tls_front.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/ssl.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <cerrno>

#include "base/text.h"
#include "net/socket_address.h"
#include "net/tls_key.h"

namespace hvd::net {
namespace {

constexpr size_t kChunk = 64 * 1024;
// See RFC 2817.
constexpr std::string_view kUpgrade =
    "HTTP/1.1 426 Upgrade Required\r\n"
    "Upgrade: TLS/1.2\r\n"
    "Connection: Upgrade, close\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 51\r\n\r\n"
    "this port speaks TLS alone: name it by https://...\n";

}  // namespace

struct TlsServerContext {
  bool has_certificate() const { return !options.certificate.empty(); }

  Status load_certificate() {
    error_code error;
    context.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
    context.use_certificate_chain_file(options.certificate, error);
    if (error) {
      return invalid_argument(cat("--tls-cert: ", printable(options.certificate),
                                  " holds no certificate that can be read: ", error.message()));
    }
    // OpenSSL must not ask for a passphrase: a server may have no terminal.
    context.set_password_callback([](size_t, auto) { return std::string(); }, error);
    context.use_private_key_file(options.key, asio::ssl::context::pem, error);
    if (!error) return {};
    return invalid_argument(cat("--tls-key: ", printable(options.key),
                                " holds no key of that certificate: ", error.message()));
  }

  asio::ssl::context context{asio::ssl::context::tls_server};
  TlsServerOptions options;
};

namespace {

// One client: its TLS socket, and this end of a socket pair whose other end goes to `adopt`.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(StreamSocket socket, std::shared_ptr<TlsServerContext> server)
      : server_(std::move(server)),
        peer_(peer_text(socket.native_handle())),
        tls_(std::move(socket), server_->context),
        plain_(tls_.get_executor()),
        limit_(tls_.get_executor()) {}

  Task<void> run(TlsFront::Adopt adopt) {
    const auto self = shared_from_this();
    arm(server_->options.limits.handshake);
    if (co_await speaks_plainly()) {
      if (server_->has_certificate()) co_return co_await say_so();
      disarm();
      co_return adopt(std::move(tls_.next_layer()), false);
    }
    const auto [error] = co_await tls_.async_handshake(asio::ssl::stream_base::server, use_tuple);
    disarm();
    if (is_of_tls(error) && is_other_key(static_cast<unsigned long>(error.value())))
      tell(server_->options.on_other_key);
    if (error || !is_proven() || !pair_up(adopt)) {
      close();
      co_return;
    }
    asio::co_spawn(tls_.get_executor(), outwards(), asio::detached);
    co_await inwards();
  }

 private:
  static bool is_of_tls(const error_code& error) {
    return error.category() == asio::error::get_ssl_category();
  }

  // A client without the shared key needs the server's certificate.
  bool is_proven() {
    const SharedKeyUse use = shared_key_use(tls_.native_handle());
    return use == SharedKeyUse::kUsed || (use == SharedKeyUse::kNone && server_->has_certificate());
  }

  void tell(const std::function<void(const std::string&)>& listener) const {
    if (listener) listener(peer_);
  }

  // Returns true if the client's first bytes are no TLS record.
  Task<bool> speaks_plainly() {
    constexpr std::byte kHandshake{22};
    co_await tls_.next_layer().async_wait(StreamSocket::wait_read, use_tuple);
    std::byte first = kHandshake;
    error_code ignored;
    tls_.next_layer().receive(asio::buffer(&first, 1), asio::socket_base::message_peek, ignored);
    co_return first != kHandshake;
  }

  // Then reads what the client still sends: an immediate close would reset the connection, and the
  // client would lose the answer.
  Task<void> say_so() {
    auto& socket = tls_.next_layer();
    co_await asio::async_write(socket, asio::buffer(kUpgrade), use_tuple);
    error_code ignored;
    socket.shutdown(StreamSocket::shutdown_send, ignored);
    std::array<std::byte, 4096> buffer;
    for (;;) {
      const auto [error, size] = co_await socket.async_read_some(asio::buffer(buffer), use_tuple);
      if (error) co_return close();
    }
  }

  bool pair_up(const TlsFront::Adopt& adopt) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return false;
    const asio::generic::stream_protocol protocol(AF_UNIX, 0);
    plain_.assign(protocol, ends[0]);
    adopt(StreamSocket(tls_.get_executor(), protocol, ends[1]), true);
    return true;
  }

  Task<void> inwards() {
    const auto self = shared_from_this();
    std::vector<std::byte> buffer(kChunk);
    for (;;) {
      const auto [error, size] = co_await tls_.async_read_some(asio::buffer(buffer), use_tuple);
      if (is_of_tls(error)) tell(server_->options.on_altered);
      if (error) break;
      const auto [failed, written] =
          co_await asio::async_write(plain_, asio::buffer(buffer.data(), size), use_tuple);
      if (failed) break;
    }
    // The bytes to the client are not cut off: outwards() closes.
    error_code ignored;
    plain_.shutdown(StreamSocket::shutdown_send, ignored);
  }

  Task<void> outwards() {
    const auto self = shared_from_this();
    std::vector<std::byte> buffer(kChunk);
    for (;;) {
      const auto [error, size] = co_await plain_.async_read_some(asio::buffer(buffer), use_tuple);
      if (error) break;
      arm(server_->options.limits.write);
      const auto [failed, written] =
          co_await asio::async_write(tls_, asio::buffer(buffer.data(), size), use_tuple);
      disarm();
      if (failed) break;
    }
    arm(server_->options.limits.handshake);
    co_await tls_.async_shutdown(use_tuple);
    disarm();
    close();
  }

  void arm(std::chrono::milliseconds time) {
    limit_.expires_after(time);
    limit_.async_wait([self = shared_from_this(), epoch = ++epoch_](const error_code& error) {
      if (!error && self->epoch_ == epoch) self->close();
    });
  }

  void disarm() {
    ++epoch_;
    limit_.cancel();
  }

  void close() {
    error_code ignored;
    tls_.next_layer().close(ignored);
    plain_.close(ignored);
  }

  const std::shared_ptr<TlsServerContext> server_;
  const std::string peer_;
  asio::ssl::stream<StreamSocket> tls_;
  StreamSocket plain_;
  asio::steady_timer limit_;
  uint64_t epoch_ = 0;  // a late timer must not close the socket after a new timer was set
};

}  // namespace

Result<TlsFront> TlsFront::make(TlsServerOptions options) {
  auto server = std::make_shared<TlsServerContext>();
  server->options = std::move(options);
  if (server->has_certificate()) HVD_RETURN_IF_ERROR(server->load_certificate());
  const auto& key = server->options.shared_key;
  if (key &&
      !accept_shared_key(server->context.native_handle(), *key, !server->has_certificate())) {
    return internal_error("TLS: OpenSSL does not accept the shared key");
  }
  return TlsFront(std::move(server));
}

void TlsFront::take(StreamSocket socket, Adopt adopt) const {
  const auto executor = socket.get_executor();
  const auto relay = std::make_shared<Relay>(std::move(socket), server_);
  asio::co_spawn(executor, relay->run(std::move(adopt)), [relay](const std::exception_ptr&) {});
}

}  // namespace hvd::net
