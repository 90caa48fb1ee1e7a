#include "net/tls/tls_context.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

#include <string_view>

#include "base/text.h"

namespace hvd::net {
namespace {

// The suite's hash must equal the key's hash: HKDF makes the key with SHA-256, and OpenSSL silently
// ignores a key of another hash.
constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteBytes[] = {0x13, 0x01};
constexpr int kSuiteHash = NID_sha256;
constexpr std::string_view kIdentity = "horovod shared key 1";

void free_key(void*, void* key, CRYPTO_EX_DATA*, int, long, void*) {
  if (key != nullptr) ::OPENSSL_cleanse(key, sizeof(Digest));
  delete static_cast<Digest*>(key);
}

// Returns the index of the key in a context's data.
int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_key);
  return index;
}

// Returns the index of a mark in a session's data. A non-null pointer there means that the client has offered the key.
int offered_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

bool keep_key(SSL_CTX* context, const Digest& key) {
  return ::SSL_CTX_set_ex_data(context, key_index(), new Digest(key)) == 1;
}

// Converts the key to OpenSSL's form; null without memory. OpenSSL frees the session.
SSL_SESSION* make_session(SSL* session) {
  const auto* key =
      static_cast<const Digest*>(::SSL_CTX_get_ex_data(::SSL_get_SSL_CTX(session), key_index()));
  SSL_SESSION* shared = ::SSL_SESSION_new();
  const SSL_CIPHER* suite = ::SSL_CIPHER_find(session, kSuiteBytes);
  if (shared != nullptr && suite != nullptr &&
      ::SSL_SESSION_set1_master_key(shared, reinterpret_cast<const unsigned char*>(key->data()),
                                    key->size()) == 1 &&
      ::SSL_SESSION_set_cipher(shared, suite) == 1 &&
      ::SSL_SESSION_set_protocol_version(shared, TLS1_3_VERSION) == 1) {
    return shared;
  }
  ::SSL_SESSION_free(shared);
  return nullptr;
}

// Offers the key. Returns 0 to end the handshake: without the key, this client would accept a certificate.
int offer(SSL* session, const EVP_MD* hash, const unsigned char** identity, size_t* size,
          SSL_SESSION** shared) {
  *shared = nullptr;
  if (hash != nullptr && ::EVP_MD_get_type(hash) != kSuiteHash) return 0;
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  *shared = make_session(session);
  return *shared != nullptr ? 1 : 0;
}

int find(SSL* session, const unsigned char* identity, size_t size, SSL_SESSION** shared) {
  *shared = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), size) != kIdentity) return 1;
  if (::SSL_set_ex_data(session, offered_index(), session) != 1) return 0;
  *shared = make_session(session);
  return *shared != nullptr ? 1 : 0;
}

bool allow_only_the_suite(SSL_CTX* context) {
  return ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         ::SSL_CTX_set_ciphersuites(context, kSuite) == 1;
}

}  // namespace

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

bool offer_shared_key(ssl_ctx_st* context, const Digest& key) {
  ::SSL_CTX_set_psk_use_session_callback(context, offer);
  return allow_only_the_suite(context) && keep_key(context, key);
}

bool accept_shared_key(ssl_ctx_st* context, const Digest& key, bool is_alone) {
  ::SSL_CTX_set_psk_find_session_callback(context, find);
  ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return ::SSL_CTX_set_num_tickets(context, 0) == 1 &&
         (!is_alone || allow_only_the_suite(context)) && keep_key(context, key);
}

SharedKeyUse shared_key_use(ssl_st* session) {
  if (::SSL_session_reused(session) == 1) return SharedKeyUse::kUsed;
  const bool is_offered = ::SSL_get_ex_data(session, offered_index()) != nullptr;
  return is_offered ? SharedKeyUse::kIgnored : SharedKeyUse::kNone;
}

bool is_other_key(unsigned long error) {
  return ERR_GET_REASON(error) == SSL_R_BINDER_DOES_NOT_VERIFY;
}

}  // namespace hvd::net
