// How a client proves to a session that it knows the job's secret.
#include "base/text.h"
#include "rendezvous/server/session.h"

namespace hvd::rendezvous {

Reply Session::hello() {
  const std::string_view nonce = parser_->field("Hvd-Nonce");
  if (parser_->method() != "GET" || !is_nonce(nonce)) {
    return {400, "hello is GET with an Hvd-Nonce header of 32 hexadecimal digits in lower case",
            nullptr};
  }
  if (key_) return {400, "hello was said on this connection before", nullptr};
  server_nonce_ = make_nonce();
  key_.emplace(core_->secret, nonce, server_nonce_);
  return {};
}

std::optional<Reply> Session::admit_signed() {
  const std::string_view text = parser_->field("Authorization");
  if (text.empty() && !parser_->target().starts_with("/v1/")) {
    return Reply{401,
                 "the request is not signed; Horovod's own workers, which sign nothing, are "
                 "served only with --insecure-compat",
                 nullptr};
  }
  if (text.empty() || !key_) {
    return Reply{401,
                 "the request is not signed: say GET /v1/hello first, then sign each request "
                 "with the job's secret",
                 nullptr};
  }
  const auto proof = parse_proof(text);
  if (!proof.ok()) return Reply{401, proof.status().message(), nullptr};
  const Digest wanted =
      key_->sign_request(proof->count, parser_->method(), parser_->target(), proof->body);
  if (!equal_in_constant_time(wanted, proof->signature)) {
    return Reply{403, "the request is signed with another secret than this job's", nullptr};
  }
  if (proof->count != count_ + 1) {
    return Reply{403,
                 cat("the request counts ", proof->count, " where ", count_ + 1,
                     " is next: a replay is refused"),
                 nullptr};
  }
  count_ = proof->count;
  body_digest_ = proof->body;
  is_proven_ = true;
  return {};
}

}  // namespace hvd::rendezvous
