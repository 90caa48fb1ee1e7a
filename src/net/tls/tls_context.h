// Makes OpenSSL contexts for clients and servers, loads their certificates and keys, and reports OpenSSL's errors.
// Only tls_*.cpp include this file.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "base/secrets/hmac.h"

struct ssl_ctx_st;
struct ssl_st;

namespace hvd::net {

struct FreeTls {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTls>;

// Returns the oldest error of this thread's queue, and empties the queue.
std::string last_tls_error();

// Load a certificate, and its private key, from PEM files. OpenSSL never asks for a passphrase. An
// error names the file.
Status use_certificate(SSL_CTX* context, const std::string& certificate);
Status use_key(SSL_CTX* context, const std::string& key, const std::string& certificate);

// Makes clients of this context offer TLS 1.3, one cipher suite, and a key that both ends hold in advance (an external
// PSK: RFC 8446, section 2.2, and RFC 9257), with ephemeral Diffie-Hellman. No end needs a certificate, and a key that
// leaks later does not decrypt earlier recordings. Returns false if OpenSSL fails.
bool offer_shared_key(ssl_ctx_st* context, const Digest& key);
// Makes servers of this context accept the key of offer_shared_key(). Such servers issue no session tickets, so the
// shared key is the only session that a client can resume. `is_alone`: the server has no certificate. Returns false if
// OpenSSL fails.
bool accept_shared_key(ssl_ctx_st* context, const Digest& key, bool is_alone);

// The use of the key in a completed handshake. kIgnored: the client offered the key, but OpenSSL ignored
// it because of another suite's hash, and used the server's certificate.
enum class SharedKeyUse { kNone, kUsed, kIgnored };
SharedKeyUse shared_key_use(ssl_st* session);

// Returns whether OpenSSL's error in a server's handshake means that the client offered another key.
bool is_other_key(unsigned long error);

}  // namespace hvd::net
