#include "launcher/protocol/token_proof.h"

#include "base/secrets/hmac.h"

namespace hvd::launcher {

namespace {

Proof prove(ByteView token, std::string_view who, const Nonce& of_launcher, const Nonce& of_agent,
            std::string_view name) {
  ByteWriter message;
  message.put_text(who).put_blob(of_launcher).put_blob(of_agent).put_text(name);
  return HmacKey(token).sign(message.view());
}

}  // namespace

Digest join_key(const Secret& token) { return token.derive("horovod join 1"); }

Secret plaintext_token(const Secret& token) {
  return *Secret::from_bytes(token.derive("horovod join in plain text 1"));
}

Proof prove_agent(ByteView token, const Nonce& of_launcher, const Nonce& of_agent,
                  std::string_view name) {
  return prove(token, "horovod agent", of_launcher, of_agent, name);
}

Proof prove_launcher(ByteView token, const Nonce& of_launcher, const Nonce& of_agent) {
  return prove(token, "horovod launcher", of_launcher, of_agent, {});
}

bool is_same(const Proof& a, const Proof& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace hvd::launcher
