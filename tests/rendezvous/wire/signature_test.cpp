#include "rendezvous/wire/signature.h"

#include <doctest/doctest.h>

#include <string>

namespace hvd::rendezvous {
namespace {

const std::string kOnes(32, '1');
const std::string kTwos(32, '2');

Secret secret() { return *Secret::from_hex("00112233445566778899aabbccddeeff"); }

}  // namespace

TEST_CASE("signatures are those of the example in PROTOCOL.md") {
  const SessionKey key(secret(), kOnes, kTwos);
  const Digest request =
      key.sign_request(1, "PUT", "/v1/keys/a%2Fb?client=c&sequence=1", sha256(as_bytes("hi")));
  CHECK(to_hex(request) == "a20901cbd722e205a8fe23e4d8be0f676e370a7f3426326ae4ede3853b5b77bc");
  CHECK(to_hex(key.sign_response(1, 200, digest_of_nothing())) ==
        "6f3001edb7befb6dace4b7485711725ae1a897b6e61f520ed6135e37f8a8f861");
}

TEST_CASE("everything that is signed changes the signature") {
  const SessionKey key(secret(), kOnes, kTwos);
  const Digest body = sha256(as_bytes("hi"));
  const Digest signature = key.sign_request(1, "PUT", "/k", body);
  CHECK(signature != key.sign_request(2, "PUT", "/k", body));
  CHECK(signature != key.sign_request(1, "GET", "/k", body));
  CHECK(signature != key.sign_request(1, "PUT", "/j", body));
  CHECK(signature != key.sign_request(1, "PUT", "/k", digest_of_nothing()));
  CHECK(signature != SessionKey(secret(), kTwos, kTwos).sign_request(1, "PUT", "/k", body));
  CHECK(signature != SessionKey(secret(), kOnes, kOnes).sign_request(1, "PUT", "/k", body));
  CHECK(signature != SessionKey(Secret::random(), kOnes, kTwos).sign_request(1, "PUT", "/k", body));
  const Digest response = key.sign_response(1, 200, body);
  CHECK(response != key.sign_response(2, 200, body));
  CHECK(response != key.sign_response(1, 404, body));
  CHECK(response != key.sign_response(1, 200, digest_of_nothing()));
}

TEST_CASE("a proof survives the way through its header, and nothing else is one") {
  const Proof proof{12345, sha256(as_bytes("a")), sha256(as_bytes("b"))};
  const std::string text = to_string(proof);
  const auto back = parse_proof(text);
  REQUIRE(back.ok());
  CHECK(back->count == proof.count);
  CHECK(back->body == proof.body);
  CHECK(back->signature == proof.signature);
  std::string upper = text;
  upper.back() = 'G';
  for (const std::string& bad :
       {std::string(), std::string("Basic abc"), text + "0", text.substr(1), " " + text, upper,
        text.substr(0, text.size() - 1), "HVD1 0" + text.substr(10), "HVD1 -1" + text.substr(10),
        "HVD1 1234567890123456789" + text.substr(10), "HVD1  " + text.substr(5)}) {
    CHECK_FALSE(parse_proof(bad).ok());
  }
}

TEST_CASE("nonces are new each time and of one form") {
  const std::string nonce = make_nonce();
  CHECK(is_nonce(nonce));
  CHECK(nonce != make_nonce());
  CHECK_FALSE(is_nonce(nonce.substr(1)));
  CHECK_FALSE(is_nonce(std::string(32, 'A')));
  CHECK_FALSE(is_nonce(""));
}

}  // namespace hvd::rendezvous
