#include "net/tls/tls_context.h"

#include <openssl/err.h>

#include "base/text.h"

namespace hvd::net {

std::string last_tls_error() {
  char text[256] = "unknown error";
  if (const auto code = ::ERR_get_error()) ::ERR_error_string_n(code, text, sizeof text);
  ::ERR_clear_error();
  return text;
}

Status use_certificate(SSL_CTX* context, const std::string& certificate) {
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) == 1) return {};
  return invalid_argument(
      cat(printable(certificate), " holds no certificate that can be read: ", last_tls_error()));
}

Status use_key(SSL_CTX* context, const std::string& key, const std::string& certificate) {
  // OpenSSL must not ask for a passphrase, since the program may lack a terminal.
  ::SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1) return {};
  return invalid_argument(cat(printable(key), " holds no key of the certificate in ",
                              printable(certificate), ": ", last_tls_error()));
}

}  // namespace hvd::net
