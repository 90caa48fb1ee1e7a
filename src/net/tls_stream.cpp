#include "net/tls_stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <climits>

#include "base/text.h"

namespace hvd::net {
namespace {

constexpr size_t kTlsChunk = 16 * 1024;

struct Free {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  void operator()(SSL* session) const { ::SSL_free(session); }
};

std::string last_error() {
  char text[256] = "unknown error";
  if (const auto code = ::ERR_get_error()) ::ERR_error_string_n(code, text, sizeof text);
  ::ERR_clear_error();
  return text;
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

// The session reads and writes memory, so that no write raises SIGPIPE in somebody's program.
class TlsStream::Impl {
 public:
  explicit Impl(BlockingStream stream) : stream_(std::move(stream)) {}

  Status open(const std::string& host, const std::string& ca_file, Deadline deadline) {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    if (!context_) return internal_error(cat("TLS: ", last_error()));
    ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (ca_file.empty()) {
      ::SSL_CTX_set_default_verify_paths(context_.get());
    } else if (::SSL_CTX_load_verify_locations(context_.get(), ca_file.c_str(), nullptr) != 1) {
      return invalid_argument(cat("the file of certificate authorities, ", printable(ca_file),
                                  ", cannot be read: ", last_error()));
    }
    session_.reset(::SSL_new(context_.get()));
    if (!session_) return internal_error(cat("TLS: ", last_error()));
    incoming_ = ::BIO_new(::BIO_s_mem());
    outgoing_ = ::BIO_new(::BIO_s_mem());
    ::SSL_set_bio(session_.get(), incoming_, outgoing_);  // belong to it from here on
    ::SSL_set_connect_state(session_.get());
    if (is_address(host)) {
      ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(session_.get()), host.c_str());
    } else {
      ::SSL_set_tlsext_host_name(session_.get(), host.c_str());
      ::SSL_set1_host(session_.get(), host.c_str());
    }
    return shake_hands(host, deadline);
  }

  Status write(ByteView bytes, Deadline deadline, bool& interrupted) {
    while (!bytes.empty() && !interrupted) {
      const ByteView chunk = bytes.first(std::min(bytes.size(), kTlsChunk));
      const int count = ::SSL_write(session_.get(), chunk.data(), static_cast<int>(chunk.size()));
      if (count <= 0) return unavailable(cat("cannot send by TLS: ", last_error()));
      bytes = bytes.subspan(static_cast<size_t>(count));
      HVD_RETURN_IF_ERROR(flush(deadline, &interrupted));
    }
    return {};
  }

  Result<size_t> read_some(std::span<std::byte> buffer, Deadline deadline) {
    for (;;) {
      const int wanted = static_cast<int>(std::min<size_t>(buffer.size(), INT_MAX));
      const int count = ::SSL_read(session_.get(), buffer.data(), wanted);
      if (count > 0) return static_cast<size_t>(count);
      const int why = ::SSL_get_error(session_.get(), count);
      if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
      if (why != SSL_ERROR_WANT_READ) return unavailable(cat("cannot receive by TLS: ", last_error()));
      HVD_RETURN_IF_ERROR(flush(deadline, nullptr));
      HVD_ASSIGN_OR_RETURN(const size_t size, take_in(deadline));
      if (size == 0) return size_t{0};
    }
  }

 private:
  Status shake_hands(const std::string& host, Deadline deadline) {
    for (;;) {
      const int result = ::SSL_do_handshake(session_.get());
      const int why = result == 1 ? 0 : ::SSL_get_error(session_.get(), result);
      HVD_RETURN_IF_ERROR(flush(deadline, nullptr));  // an alert too
      if (result == 1) return {};
      if (why != SSL_ERROR_WANT_READ) return refuse(host);
      HVD_ASSIGN_OR_RETURN(const size_t size, take_in(deadline));
      if (size == 0) return unavailable("the server closed the connection before it spoke TLS");
    }
  }

  Status refuse(const std::string& host) const {
    const long verdict = ::SSL_get_verify_result(session_.get());
    if (verdict == X509_V_OK) {
      return failed_precondition(cat("what listens there does not speak TLS (", last_error(), ")"));
    }
    ::ERR_clear_error();
    return failed_precondition(cat("the certificate of the server does not prove that it is ",
                                 printable(host), ": ", ::X509_verify_cert_error_string(verdict),
                                 "; name the file of the authority that signed it in "
                                 "HOROVOD_STORE_CA"));
  }

  // What the session wants to send. *interrupted: the peer has said something instead of taking it.
  Status flush(Deadline deadline, bool* interrupted) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(outgoing_, &data);
    const Bytes bytes = to_bytes({data, static_cast<size_t>(size)});
    (void)BIO_reset(outgoing_);
    ByteView left = bytes;
    while (!left.empty()) {
      const ssize_t count = ::send(stream_.fd(), left.data(), left.size(), MSG_NOSIGNAL);
      if (count >= 0) {
        left = left.subspan(static_cast<size_t>(count));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return system_error("cannot send", errno);
      const bool listens = interrupted != nullptr;
      pollfd entry{stream_.fd(), static_cast<short>(POLLOUT | (listens ? POLLIN : 0)), 0};
      if (::poll(&entry, 1, deadline.poll_timeout()) == 0 && deadline.passed()) {
        return deadline_exceeded("no answer in time");
      }
      if (listens && (entry.revents & POLLIN) != 0) {
        HVD_ASSIGN_OR_RETURN(const size_t heard, take_in(deadline));
        char byte = 0;
        *interrupted = heard == 0 || ::SSL_peek(session_.get(), &byte, 1) > 0;
        if (*interrupted) break;
      }
    }
    return {};
  }

  // Bytes from the socket into the session; 0 at their end.
  Result<size_t> take_in(Deadline deadline) {
    std::array<std::byte, kTlsChunk> buffer;
    HVD_ASSIGN_OR_RETURN(const size_t size, stream_.read_some(buffer, deadline));
    if (size > 0) ::BIO_write(incoming_, buffer.data(), static_cast<int>(size));
    return size;
  }

  BlockingStream stream_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> session_;
  BIO* incoming_ = nullptr;
  BIO* outgoing_ = nullptr;
};

TlsStream::TlsStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsStream::TlsStream(TlsStream&&) noexcept = default;
TlsStream& TlsStream::operator=(TlsStream&&) noexcept = default;
TlsStream::~TlsStream() = default;

Result<TlsStream> TlsStream::connect(BlockingStream stream, const std::string& host,
                                     const std::string& ca_file, Deadline deadline) {
  auto impl = std::make_unique<Impl>(std::move(stream));
  HVD_RETURN_IF_ERROR(impl->open(host, ca_file, deadline));
  return TlsStream(std::move(impl));
}

Status TlsStream::write(ByteView head, ByteView body, Deadline deadline, bool& interrupted) {
  interrupted = false;
  HVD_RETURN_IF_ERROR(impl_->write(head, deadline, interrupted));
  return impl_->write(body, deadline, interrupted);
}

Result<size_t> TlsStream::read_some(std::span<std::byte> buffer, Deadline deadline) {
  return impl_->read_some(buffer, deadline);
}

}  // namespace hvd::net
