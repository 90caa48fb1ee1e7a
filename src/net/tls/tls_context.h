// OpenSSL contexts of clients and servers: their lifetime, certificates and errors. Only tls_*.cpp include this file.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace hvd::net {

struct FreeTls {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  void operator()(SSL* session) const { ::SSL_free(session); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTls>;

// Returns the oldest error of this thread's queue, and empties the queue.
std::string last_tls_error();

// Load a certificate, and its private key, from PEM files. OpenSSL never asks for a passphrase. An
// error names the file.
Status use_certificate(SSL_CTX* context, const std::string& certificate);
Status use_key(SSL_CTX* context, const std::string& key, const std::string& certificate);

}  // namespace hvd::net
