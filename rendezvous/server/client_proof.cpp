#include "rendezvous/server/client_proof.h"

#include "base/text.h"

namespace hvd::rendezvous {

Reply ClientProof::hello(const net::HttpRequestParser& request) {
  const std::string_view nonce = request.field("Hvd-Nonce");
  if (request.method() != "GET" || !is_nonce(nonce)) {
    return {400, "hello is GET with an Hvd-Nonce header of 32 hexadecimal digits in lower case",
            nullptr};
  }
  if (key_) return {400, "this connection has sent hello before; send it once", nullptr};
  server_nonce_ = make_nonce();
  key_.emplace(secret_, nonce, server_nonce_);
  return {};
}

std::optional<Reply> ClientProof::admit(const net::HttpRequestParser& request) {
  const std::string_view text = request.field("Authorization");
  if (text.empty() && !request.target().starts_with("/v1/")) {
    return Reply{401,
                 "the request is not signed; Horovod's own workers, which sign nothing, are "
                 "served only with --insecure-compat, without TLS, and not at the port of "
                 "horovodrun --listen",
                 nullptr};
  }
  if (text.empty() || !key_) {
    return Reply{401,
                 "the request is not signed: send GET /v1/hello first, then sign each request "
                 "with the job's secret",
                 nullptr};
  }
  const auto proof = parse_proof(text);
  if (!proof.ok()) return Reply{401, proof.status().message(), nullptr};
  const Digest wanted =
      key_->sign_request(proof->count, request.method(), request.target(), proof->body);
  if (!equal_in_constant_time(wanted, proof->signature)) {
    return Reply{403, "the request is signed with another secret than this job's", nullptr};
  }
  if (proof->count != count_ + 1) {
    return Reply{403,
                 cat("the request has the number ", proof->count, ", and the next number is ",
                     count_ + 1, ": a replay is refused"),
                 nullptr};
  }
  count_ = proof->count;
  body_digest_ = proof->body;
  is_proven_ = true;
  return {};
}

std::string ClientProof::signature_of(const Reply& reply) const {
  return to_hex(key_->sign_response(count_, reply.status, reply.digest()));
}

}  // namespace hvd::rendezvous
