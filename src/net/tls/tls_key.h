// TLS 1.3 by a key that both ends hold in advance (an external PSK: RFC 8446, section 2.2, and RFC 9257), with
// ephemeral Diffie-Hellman: no certificate proves an end, and a key that leaks later opens no old
// recording. Both ends of src/net's TLS use it. Only tls_*.cpp call it. Contexts and sessions are
// OpenSSL's.
#pragma once

#include "base/secrets/hmac.h"

struct ssl_ctx_st;
struct ssl_st;

namespace hvd::net {

// The clients of this context offer the key, TLS 1.3 and one cipher suite, and nothing else.
bool offer_shared_key(ssl_ctx_st* context, const Digest& key);
// The servers of this context accept the key. They issue no session tickets: the shared key is then
// the only session that a client can resume. `is_alone`: the server has no certificate.
bool accept_shared_key(ssl_ctx_st* context, const Digest& key, bool is_alone);

// After a handshake. kIgnored: the client offered the key, and another suite's hash made OpenSSL pass
// over it, to the server's certificate.
enum class SharedKeyUse { kNone, kUsed, kIgnored };
SharedKeyUse shared_key_use(ssl_st* session);

// Whether an error of OpenSSL in a server's handshake says that the client offered another key.
bool is_other_key(unsigned long error);

}  // namespace hvd::net
