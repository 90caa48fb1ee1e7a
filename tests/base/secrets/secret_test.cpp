#include "base/secrets/secret.h"

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

namespace hvd {

TEST_CASE("HMAC-SHA256 gives the value of RFC 4231, test case 2") {
  const auto secret = Secret::from_bytes(as_bytes("Jefe"));
  REQUIRE(secret.ok());
  CHECK(to_hex(secret->sign(as_bytes("what do ya want for nothing?"))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("HMAC-SHA256 is that of libcrypto, for keys around the size of a block") {
  for (const size_t size : {1, 63, 64, 65, 500}) {
    CAPTURE(size);
    const std::string key(size, 'k'), message(3 * size, 'm');
    Digest digest;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(message.data()), message.size(),
         reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    const HmacKey ready(as_bytes(key));
    CHECK(ready.sign(as_bytes(message)) == digest);
    CHECK(ready.sign({message.substr(0, size), "", message.substr(size)}) == digest);
  }
}

TEST_CASE("a derived key is HKDF-SHA256 of RFC 5869, test case 3, and another for each purpose") {
  const auto secret = Secret::from_bytes(as_bytes(std::string(22, '\x0b')));
  REQUIRE(secret.ok());
  CHECK(to_hex(secret->derive("")) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
  CHECK(secret->derive("a") != secret->derive("b"));
}

TEST_CASE("HMAC-SHA1 gives the value of RFC 2202, test case 2") {
  CHECK(to_hex(hmac_sha1(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))) ==
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
}

TEST_CASE("a secret survives the way through hexadecimal digits") {
  const Secret secret = Secret::random();
  const auto copy = Secret::from_hex(secret.hex());
  REQUIRE(copy.ok());
  CHECK(copy->sign(as_bytes("x")) == secret.sign(as_bytes("x")));
  CHECK(secret.hex() != Secret::random().hex());
}

TEST_CASE("a malformed secret is refused without being shown") {
  const auto secret = Secret::from_hex("topsecretz");
  REQUIRE_FALSE(secret.ok());
  CHECK(secret.status().message().find("topsecret") == std::string::npos);
  CHECK_FALSE(Secret::from_hex("").ok());
}

TEST_CASE("a random fraction lies between 0 and 1, and varies in all its bits") {
  double least = 1, most = 0, last_bits = 0;
  for (int i = 0; i < 1000; ++i) {
    const double fraction = random_fraction();
    REQUIRE((fraction >= 0 && fraction < 1));
    least = std::min(least, fraction), most = std::max(most, fraction);
    last_bits +=
        fraction * 0x1p53 - 2 * static_cast<double>(static_cast<uint64_t>(fraction * 0x1p52));
  }
  CHECK((least < 0.1 && most > 0.9));
  CHECK((last_bits > 300 && last_bits < 700));
}

TEST_CASE("constant-time comparison tells equal from different") {
  CHECK(equal_in_constant_time(as_bytes("abc"), as_bytes("abc")));
  CHECK_FALSE(equal_in_constant_time(as_bytes("abc"), as_bytes("abd")));
  CHECK_FALSE(equal_in_constant_time(as_bytes("abc"), as_bytes("ab")));
}

TEST_CASE("sha256 of nothing is the well-known value") {
  CHECK(to_hex(sha256({})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace hvd
