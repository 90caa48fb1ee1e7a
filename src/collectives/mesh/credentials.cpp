#include "collectives/mesh/credentials.h"

namespace hvd::collectives {
namespace {

Bytes statement(const Credentials& credentials, std::string_view protocol, std::string_view role,
                int32_t from, int32_t to, const Nonce& first, const Nonce& second,
                ByteView payload) {
  ByteWriter out;
  out.put_text(protocol).put_text(role).put_text(credentials.job).put(credentials.generation);
  out.put(from).put(to).put_raw(first).put_raw(second).put_blob(payload);
  return out.take();
}

}  // namespace

Digest Credentials::prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                          const Nonce& second, ByteView payload) const {
  return secret.sign(statement(*this, "horovod link 1", role, from, to, first, second, payload));
}

Digest Credentials::derive_key(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                               const Nonce& second, ByteView payload) const {
  return secret.derive(
      as_text(statement(*this, "horovod link key 1", role, from, to, first, second, payload)));
}

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

}  // namespace hvd::collectives
