/* A library with functions named like internal functions of libhorovod.so, which end the process: a
 * user's process may have loaded other versions of these functions before. */
#include <stdlib.h>

#define HOSTILE(name)                                     \
  __attribute__((visibility("default"))) void name(void); \
  void name(void) { abort(); }

HOSTILE(CRYPTO_memcmp)
HOSTILE(EVP_Digest)
HOSTILE(EVP_DigestInit_ex)
HOSTILE(EVP_MAC_CTX_new)
HOSTILE(EVP_MD_CTX_new)
HOSTILE(EVP_MD_fetch)
HOSTILE(EVP_sha256)
HOSTILE(HMAC)
HOSTILE(OPENSSL_cleanse)
HOSTILE(OPENSSL_init_crypto)
HOSTILE(SHA256)
/* fmt::v9::format_error::~format_error(), fmt::v9::vformat(...), spdlog::default_logger_raw() */
HOSTILE(_ZN3fmt2v912format_errorD1Ev)
HOSTILE(
    _ZN3fmt2v97vformatB5cxx11ENS0_17basic_string_viewIcEENS0_17basic_format_argsINS0_20basic_format_contextINS0_8appenderEcEEEE)
HOSTILE(_ZN6spdlog18default_logger_rawEv)
HOSTILE(_ZN6google8protobuf8internal13VerifyVersionEiiPKc)
