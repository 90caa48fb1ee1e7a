// A value of the store as a server holds it: shared by the store and the replies that send it.
#pragma once

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

struct Value {
  Bytes bytes;
  std::optional<Digest> digest;  // SHA-256 of the bytes, when somebody has computed it already
};
using ValuePtr = std::shared_ptr<const Value>;

}  // namespace hvd::rendezvous
