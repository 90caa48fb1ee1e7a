// Checks that the client of one connection has the job's secret: the client sends a hello, then a signature and a count
// with each request (PROTOCOL.md, "Signatures"). Owns the connection's key and count; never reads or writes the
// connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/secrets/secret.h"
#include "net/http.h"
#include "rendezvous/server/service.h"
#include "rendezvous/wire/signature.h"

namespace hvd::rendezvous {

class ClientProof {
 public:
  // `secret` is the job's secret, and must outlive this object.
  explicit ClientProof(const Secret& secret) : secret_(secret) {}

  // Answers GET /v1/hello. The session sends take_nonce() with the reply.
  Reply hello(const net::HttpRequestParser& request);
  // Returns the server's nonce once after a hello, otherwise an empty text.
  std::string take_nonce() { return std::exchange(server_nonce_, {}); }

  // Returns nullopt if the head of this request has a valid signature, else the refusal.
  std::optional<Reply> admit(const net::HttpRequestParser& request);
  // Returns the digest that the admitted request announces for its body.
  const Digest& body_digest() const { return body_digest_; }
  // Returns the signature of the reply to the admitted request, in hexadecimal digits.
  std::string signature_of(const Reply& reply) const;

  bool has_key() const { return key_.has_value(); }
  // Returns whether at least one request had a valid signature.
  bool is_proven() const { return is_proven_; }

 private:
  const Secret& secret_;
  std::optional<SessionKey> key_;  // after hello
  std::string server_nonce_;       // after hello, until the reply takes the nonce
  bool is_proven_ = false;
  uint64_t count_ = 0;  // count in the last valid signature
  Digest body_digest_{};
};

}  // namespace hvd::rendezvous
