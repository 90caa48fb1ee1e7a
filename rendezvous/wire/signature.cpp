#include "rendezvous/wire/signature.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kScheme = "HVD1 ";
constexpr size_t kNonceBytes = 16;
constexpr size_t kMaxCountDigits = 18;

Digest derive(const Secret& secret, std::string_view client_nonce, std::string_view server_nonce) {
  return secret.sign(
      as_bytes(cat("horovod-rendezvous-1\n", client_nonce, "\n", server_nonce, "\n")));
}

// The value of each byte as a hexadecimal digit; 16 if the byte is not a digit. A table needs no branches: each
// request carries two digests to parse.
constexpr std::array<uint8_t, 256> kDigitValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(16);
  for (unsigned i = 0; i < 16; ++i) values[static_cast<unsigned char>("0123456789abcdef"[i])] = i;
  return values;
}();

unsigned value_of(char digit) { return kDigitValues[static_cast<unsigned char>(digit)]; }

struct HexDigest {
  explicit HexDigest(const Digest& digest) { write_hex(digest, digits.data()); }
  std::string_view view() const { return {digits.data(), digits.size()}; }
  std::array<char, 2 * sizeof(Digest)> digits;
};

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return value_of(c) < 16; });
}

}  // namespace

std::string make_nonce() {
  std::array<std::byte, kNonceBytes> bytes;
  fill_random(bytes);
  return to_hex(bytes);
}

bool is_nonce(std::string_view text) {
  return text.size() == 2 * kNonceBytes && is_lower_hex(text);
}

SessionKey::SessionKey(const Secret& secret, std::string_view client_nonce,
                       std::string_view server_nonce)
    : key_(derive(secret, client_nonce, server_nonce)) {}

Digest SessionKey::sign_request(uint64_t count, std::string_view method, std::string_view target,
                                const Digest& body) const {
  return key_.sign({"request\n", std::to_string(count), "\n", method, "\n", target, "\n",
                    HexDigest(body).view()});
}

Digest SessionKey::sign_response(uint64_t count, int status, const Digest& body) const {
  return key_.sign({"response\n", std::to_string(count), "\n", std::to_string(status), "\n",
                    HexDigest(body).view()});
}

std::string to_string(const Proof& proof) {
  std::string text(kScheme);
  text.reserve(kScheme.size() + kMaxCountDigits + 2 + 4 * sizeof(Digest));
  text.append(std::to_string(proof.count)).append(" ").append(HexDigest(proof.body).view());
  return text.append(" ").append(HexDigest(proof.signature).view());
}

Result<Proof> parse_proof(std::string_view text) {
  const auto malformed = [] {
    return invalid_argument(
        "the Authorization header is not 'HVD1 <count> <SHA-256 of the body> <signature>'");
  };
  if (!text.starts_with(kScheme)) return malformed();
  text.remove_prefix(kScheme.size());
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space > kMaxCountDigits) return malformed();
  const auto count = parse_int(text.substr(0, space));
  if (!count || *count < 1) return malformed();
  text.remove_prefix(space + 1);
  constexpr size_t kDigits = 2 * sizeof(Digest);
  if (text.size() != 2 * kDigits + 1 || text[kDigits] != ' ') return malformed();
  const auto body = parse_digest(text.substr(0, kDigits));
  const auto signature = parse_digest(text.substr(kDigits + 1));
  if (!body.ok() || !signature.ok()) return malformed();
  return Proof{static_cast<uint64_t>(*count), *body, *signature};
}

Result<Digest> parse_digest(std::string_view text) {
  Digest digest;
  unsigned seen = 0;
  if (text.size() == 2 * digest.size()) {
    for (size_t i = 0; i < digest.size(); ++i) {
      const unsigned high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
      seen |= high | low;
      digest[i] = static_cast<std::byte>(high << 4 | low);
    }
    if (seen < 16) return digest;
  }
  return invalid_argument("a digest is 64 hexadecimal digits in lower case");
}

const Digest& digest_of_nothing() {
  static const Digest kDigest = sha256({});
  return kDigest;
}

}  // namespace hvd::rendezvous
