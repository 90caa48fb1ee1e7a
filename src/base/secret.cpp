#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "base/check.h"

namespace hvd {

Secret Secret::random() {
  Bytes bytes(32);
  fill_random(bytes);
  return Secret(std::move(bytes));
}

Result<Secret> Secret::from_bytes(ByteView bytes) {
  if (bytes.empty()) return invalid_argument("the secret is empty");
  if (bytes.size() > 1024) return invalid_argument("the secret is longer than 1024 bytes");
  return Secret(Bytes(bytes.begin(), bytes.end()));
}

Result<Secret> Secret::from_hex(std::string_view hex) {
  auto bytes = hvd::from_hex(hex);
  if (!bytes.ok()) return invalid_argument("the secret is not written in hexadecimal digits");
  return from_bytes(*bytes);
}

Secret::~Secret() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

std::string Secret::hex() const { return to_hex(bytes_); }

Digest Secret::sign(ByteView message) const {
  Digest digest;
  unsigned size = 0;
  const auto* made = HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(digest.data()), &size);
  HVD_CHECK(made != nullptr && size == digest.size());
  return digest;
}

bool equal_in_constant_time(ByteView a, ByteView b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    HVD_CHECK(count > 0);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

std::string to_hex(ByteView bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    hex += kDigits[std::to_integer<unsigned>(b) >> 4];
    hex += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return hex;
}

Result<Bytes> from_hex(std::string_view hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (hex.size() % 2 != 0) return invalid_argument("an odd number of hexadecimal digits");
  Bytes bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return invalid_argument("not a hexadecimal digit");
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return bytes;
}

Digest sha256(ByteView message) {
  Digest digest;
  unsigned size = 0;
  const int made = EVP_Digest(message.data(), message.size(),
                              reinterpret_cast<unsigned char*>(digest.data()), &size,
                              EVP_sha256(), nullptr);
  HVD_CHECK(made == 1 && size == digest.size());
  return digest;
}

}  // namespace hvd
