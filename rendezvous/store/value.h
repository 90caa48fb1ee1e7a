// A value of a server's store. StoreState and the replies that send the value share its ownership.
// Immutable.
#pragma once

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

struct Value {
  Bytes bytes;
  std::optional<Digest> digest;  // SHA-256 of the bytes, if the signature check has computed it
};
using ValuePtr = std::shared_ptr<const Value>;

}  // namespace hvd::rendezvous
