// How the client of one connection proves that it knows the job's secret (PROTOCOL.md): hello, then a
// signature and a count on each request. Owns the connection's key and its count; never reads or
// writes the connection. Lives in a Session, on the server's loop.
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
  // `secret` is the job's and outlives this.
  explicit ClientProof(const Secret& secret) : secret_(secret) {}

  // The answer to GET /v1/hello, whose reply carries take_nonce().
  Reply hello(const net::HttpRequestParser& request);
  // The server's nonce of a hello, once; else empty.
  std::string take_nonce() { return std::exchange(server_nonce_, {}); }

  // Nothing when the head of this request is signed; else why the request is refused.
  std::optional<Reply> admit(const net::HttpRequestParser& request);
  // Of the body that the admitted request has promised.
  const Digest& body_digest() const { return body_digest_; }
  // Of the reply to the admitted request, as text.
  std::string signature_of(const Reply& reply) const;

  bool has_said_hello() const { return key_.has_value(); }
  // A request was signed rightly.
  bool is_proven() const { return is_proven_; }

 private:
  const Secret& secret_;
  std::optional<SessionKey> key_;  // after hello
  std::string server_nonce_;       // of an answered hello, until it is sent
  bool is_proven_ = false;
  uint64_t count_ = 0;  // of the last proven request
  Digest body_digest_{};
};

}  // namespace hvd::rendezvous
