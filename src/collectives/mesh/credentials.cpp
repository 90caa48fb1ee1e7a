#include "collectives/mesh/credentials.h"

namespace hvd::collectives {

Digest Credentials::prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                          const Nonce& second, ByteView payload) const {
  ByteWriter out;
  out.put_text("horovod link 1").put_text(role).put_text(job).put(generation);
  out.put(from).put(to).put_raw(first).put_raw(second).put_blob(payload);
  return secret.sign(out.view());
}

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

}  // namespace hvd::collectives
