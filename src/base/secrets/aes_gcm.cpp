#include "base/secrets/aes_gcm.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace hvd {
namespace {

using Nonce = std::array<unsigned char, 12>;

// The cipher has a separate library context: no configuration file changes this context, and the
// exit of the process does not free it while a thread still encrypts.
const EVP_CIPHER* cipher() {
  static const EVP_CIPHER* const cipher =
      ::EVP_CIPHER_fetch(::OSSL_LIB_CTX_new(), "AES-256-GCM", nullptr);
  HVD_CHECK(cipher != nullptr);
  return cipher;
}

Nonce nonce_of(uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
}

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const { ::EVP_CIPHER_CTX_free(context); }

AesGcm::AesGcm(const Digest& key, Direction direction) : context_(::EVP_CIPHER_CTX_new()) {
  HVD_CHECK(context_ != nullptr);
  const int encrypts = direction == Direction::kSeal ? 1 : 0;
  HVD_CHECK(::EVP_CipherInit_ex2(context_.get(), cipher(), raw(key.data()), nullptr, encrypts,
                                 nullptr) == 1);
}

void AesGcm::seal(uint64_t nonce, std::span<const ByteView> parts, std::byte* sealed) {
  EVP_CIPHER_CTX* const context = context_.get();
  HVD_CHECK(::EVP_EncryptInit_ex2(context, nullptr, nullptr, nonce_of(nonce).data(), nullptr) == 1);
  int size = 0;
  for (const ByteView part : parts) {
    if (part.empty()) continue;
    HVD_CHECK(::EVP_EncryptUpdate(context, raw(sealed), &size, raw(part.data()),
                                  static_cast<int>(part.size())) == 1);
    sealed += part.size();
  }
  HVD_CHECK(::EVP_EncryptFinal_ex(context, raw(sealed), &size) == 1);
  HVD_CHECK(::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagSize, sealed) == 1);
}

bool AesGcm::open(uint64_t nonce, ByteView sealed, std::byte* plain) {
  if (sealed.size() < kTagSize) return false;
  EVP_CIPHER_CTX* const context = context_.get();
  HVD_CHECK(::EVP_DecryptInit_ex2(context, nullptr, nullptr, nonce_of(nonce).data(), nullptr) == 1);
  const size_t size = sealed.size() - kTagSize;
  std::array<std::byte, kTagSize> tag;
  std::memcpy(tag.data(), sealed.data() + size, kTagSize);
  int written = 0;
  if (size > 0) {
    HVD_CHECK(::EVP_DecryptUpdate(context, raw(plain), &written, raw(sealed.data()),
                                  static_cast<int>(size)) == 1);
  }
  HVD_CHECK(::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagSize, tag.data()) == 1);
  return ::EVP_DecryptFinal_ex(context, raw(plain) + size, &written) == 1;
}

}  // namespace hvd
