#include "base/secrets/secret.h"

#include <openssl/crypto.h>
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

Digest Secret::sign(ByteView message) const { return HmacKey(bytes_).sign(message); }

Digest Secret::derive(std::string_view purpose) const {
  const Digest extracted = HmacKey(Digest{}).sign(bytes_);
  constexpr std::string_view kFirstBlock("\x01", 1);
  return HmacKey(extracted).sign({purpose, kFirstBlock});
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

void write_hex(ByteView bytes, char* digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    *digits++ = kDigits[std::to_integer<unsigned>(byte) >> 4];
    *digits++ = kDigits[std::to_integer<unsigned>(byte) & 15];
  }
}

std::string to_hex(ByteView bytes) {
  std::string hex;
  hex.resize(2 * bytes.size());
  write_hex(bytes, hex.data());
  return hex;
}

std::string random_hex(size_t bytes) {
  Bytes random(bytes);
  fill_random(random);
  return to_hex(random);
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
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return invalid_argument("not a hexadecimal digit");
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return bytes;
}

}  // namespace hvd
