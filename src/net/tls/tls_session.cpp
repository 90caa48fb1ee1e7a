#include "net/tls/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <climits>

#include "base/text.h"
#include "net/socket_address.h"
#include "net/tls/tls_context.h"

namespace hvd::net {
namespace {

// Empties this thread's error queue, whose errors would look like errors of the next call. Checks the
// queue first, since ERR_clear_error() takes time even if it is empty.
void forget_tls_errors() {
  if (::ERR_peek_error() != 0) ::ERR_clear_error();
}

// Returns whether this alert refuses a client's certificate, or the lack of one.
bool is_about_certificate(int reason) {
  constexpr int kAlerts[] = {
      SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
      SSL_R_SSLV3_ALERT_NO_CERTIFICATE,        SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
      SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,   SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
      SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,   SSL_R_TLSV1_ALERT_UNKNOWN_CA};
  return std::find(std::begin(kAlerts), std::end(kAlerts), reason) != std::end(kAlerts);
}

Status use_files(SSL_CTX* context, const TlsOptions& options) {
  if (options.ca_file.empty()) {
    ::SSL_CTX_set_default_verify_paths(context);
  } else if (::SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr) != 1) {
    return invalid_argument(cat(options.ca_setting, ": the file of certificate authorities, ",
                                printable(options.ca_file),
                                ", cannot be read: ", last_tls_error()));
  }
  if (options.certificate.empty()) return {};
  HVD_RETURN_IF_ERROR(use_certificate(context, options.certificate));
  return use_key(context, options.key, options.certificate);
}

}  // namespace

void TlsSession::Free::operator()(ssl_st* session) const { ::SSL_free(session); }
void TlsSession::Free::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }

Result<TlsSession> TlsSession::client(const std::string& host, const TlsOptions& options) {
  TlsSession session;
  HVD_RETURN_IF_ERROR(session.open(host, options));
  return session;
}

Result<TlsSession> TlsSession::with_shared_key(const Digest& key) {
  TlsSession session;
  HVD_RETURN_IF_ERROR(session.open(key));
  return session;
}

Result<TlsSession> TlsSession::server(ssl_ctx_st* context) {
  TlsSession session;
  HVD_RETURN_IF_ERROR(session.accept(context));
  return session;
}

Status TlsSession::open(const std::string& host, const TlsOptions& options) {
  // Without a host, OpenSSL would accept a certificate for any name.
  if (host.empty()) return invalid_argument("TLS: the address names no host: write HOST:PORT");
  host_ = host;
  ca_setting_ = options.ca_setting;
  HVD_RETURN_IF_ERROR(make_context());
  ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  HVD_RETURN_IF_ERROR(use_files(context_.get(), options));
  HVD_RETURN_IF_ERROR(make_session());
  bool is_set = false;
  if (!address_bytes(host).empty()) {
    is_set = ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(session_.get()), host.c_str()) == 1;
  } else {
    is_set = ::SSL_set_tlsext_host_name(session_.get(), host.c_str()) == 1 &&
             ::SSL_set1_host(session_.get(), host.c_str()) == 1;
  }
  return is_set ? Status() : internal_error(cat("TLS: ", last_tls_error()));
}

// Opens a client with a shared key. The client has no authorities, so it does not trust any certificate.
Status TlsSession::open(const Digest& key) {
  has_shared_key_ = true;
  HVD_RETURN_IF_ERROR(make_context());
  if (!offer_shared_key(context_.get(), key)) return internal_error(cat("TLS: ", last_tls_error()));
  return make_session();
}

Status TlsSession::accept(SSL_CTX* context) {
  is_server_ = true;
  ::SSL_CTX_up_ref(context);
  context_.reset(context);
  return make_session();
}

Result<bool> TlsSession::shake_hands() {
  forget_tls_errors();
  const int result = ::SSL_do_handshake(session_.get());
  if (result != 1) {
    if (::SSL_get_error(session_.get(), result) == SSL_ERROR_WANT_READ) return false;
    if (is_server_) return refuse_client();
    return has_shared_key_ ? refuse_shared_key() : refuse();
  }
  if (is_server_) return check_client();
  if (!has_shared_key_ || shared_key_use(session_.get()) == SharedKeyUse::kUsed) return true;
  return failed_precondition("the program that listens there did not use the shared key");
}

Result<std::optional<size_t>> TlsSession::read(std::span<std::byte> buffer) {
  // Without input, skip SSL_read(), which takes half as long as decrypting a short record.
  if (::BIO_ctrl_pending(incoming_) == 0 && ::SSL_has_pending(session_.get()) == 0 &&
      (::SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) == 0) {
    return std::optional<size_t>();
  }
  const int wanted = static_cast<int>(std::min<size_t>(buffer.size(), INT_MAX));
  forget_tls_errors();
  const int count = ::SSL_read(session_.get(), buffer.data(), wanted);
  if (count > 0) return std::optional(static_cast<size_t>(count));
  const int why = ::SSL_get_error(session_.get(), count);
  if (why == SSL_ERROR_ZERO_RETURN) return std::optional(size_t{0});
  if (why == SSL_ERROR_WANT_READ) return std::optional<size_t>();
  const int reason = ERR_GET_REASON(::ERR_peek_error());
  if (is_about_certificate(reason)) {
    return failed_precondition(
        cat("the server wants a certificate of this side, or another one "
            "than it has (",
            last_tls_error(), ")"));
  }
  if (why == SSL_ERROR_SSL &&
      (reason < SSL_AD_REASON_OFFSET || reason == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC)) {
    return unavailable(
        cat("bytes were altered in transit, and none of them is used (", last_tls_error(), ")"));
  }
  return unavailable(cat("cannot receive by TLS: ", last_tls_error()));
}

bool TlsSession::has_something() {
  char byte = 0;
  forget_tls_errors();
  return ::SSL_peek(session_.get(), &byte, 1) > 0;
}

Status TlsSession::write(ByteView bytes) {
  while (!bytes.empty()) {
    const int wanted = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    forget_tls_errors();
    const int count = ::SSL_write(session_.get(), bytes.data(), wanted);
    if (count <= 0) return unavailable(cat("cannot send by TLS: ", last_tls_error()));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

void TlsSession::feed(ByteView received) {
  while (!received.empty()) {
    const int size = static_cast<int>(std::min<size_t>(received.size(), INT_MAX));
    ::BIO_write(incoming_, received.data(), size);  // a memory BIO accepts all bytes
    received = received.subspan(static_cast<size_t>(size));
  }
}

void TlsSession::end() {
  forget_tls_errors();
  if (::SSL_is_init_finished(session_.get()) == 1) ::SSL_shutdown(session_.get());
}

Bytes TlsSession::take_output() {
  // Do not use BIO_reset(), which zeroes the buffer up to its largest size so far.
  Bytes bytes(::BIO_ctrl_pending(outgoing_));
  if (!bytes.empty()) ::BIO_read(outgoing_, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

Status TlsSession::make_context() {
  context_.reset(::SSL_CTX_new(::TLS_client_method()));
  if (!context_) return internal_error(cat("TLS: ", last_tls_error()));
  ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  return {};
}

Status TlsSession::make_session() {
  session_.reset(::SSL_new(context_.get()));
  if (!session_) return internal_error(cat("TLS: ", last_tls_error()));
  incoming_ = ::BIO_new(::BIO_s_mem());
  outgoing_ = ::BIO_new(::BIO_s_mem());
  ::SSL_set_bio(session_.get(), incoming_, outgoing_);  // the session owns the two BIOs
  is_server_ ? ::SSL_set_accept_state(session_.get()) : ::SSL_set_connect_state(session_.get());
  return {};
}

Status TlsSession::refuse_client() {
  const unsigned long error = ::ERR_peek_error();
  const std::string reason = last_tls_error();
  if (is_other_key(error)) return permission_denied("the client offers another shared key");
  return unavailable(cat("the client does not complete the TLS handshake (", reason, ")"));
}

// A client without a shared key needs the certificate of this server. A client whose shared key was
// not used is refused, even if it would accept the certificate.
Result<bool> TlsSession::check_client() const {
  const SharedKeyUse use = shared_key_use(session_.get());
  const bool has_certificate = ::SSL_CTX_get0_certificate(context_.get()) != nullptr;
  if (use == SharedKeyUse::kUsed || (use == SharedKeyUse::kNone && has_certificate)) return true;
  return failed_precondition("the client and this server did not use the shared key");
}

Status TlsSession::refuse_shared_key() const {
  const bool has_certificate = ::SSL_get_verify_result(session_.get()) != X509_V_OK;
  const bool is_alert = ERR_GET_REASON(::ERR_peek_error()) >= SSL_AD_REASON_OFFSET;
  const std::string reason = last_tls_error();
  if (has_certificate) {
    return failed_precondition(
        "the program that listens there shows a certificate, and no shared key");
  }
  if (is_alert) return permission_denied(cat("the server refuses the shared key (", reason, ")"));
  return failed_precondition(
      cat("the program that listens there does not speak TLS (", reason, ")"));
}

Status TlsSession::refuse() const {
  const long verdict = ::SSL_get_verify_result(session_.get());
  const std::string reason = last_tls_error();
  if (verdict == X509_V_OK) {
    return failed_precondition(
        cat("the program that listens there does not speak TLS, has no certificate, or wants a "
            "certificate "
            "of this side (",
            reason, ")"));
  }
  return failed_precondition(cat("the certificate of the server does not prove that it is ",
                                 printable(host_), ": ", ::X509_verify_cert_error_string(verdict),
                                 "; name the file of the authority that signed it in ",
                                 ca_setting_));
}

}  // namespace hvd::net
