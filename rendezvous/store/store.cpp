#include "rendezvous/store/store.h"

#include "base/text.h"

namespace hvd::rendezvous {

Status check_key(std::string_view key) {
  if (key.empty()) return invalid_argument("the key is empty");
  if (key.size() > kMaxKeyBytes) {
    return invalid_argument(
        cat("the key '", printable(key, 40), "' is longer than ", kMaxKeyBytes, " bytes"));
  }
  return {};
}

Status check_value(std::string_view key, size_t size) {
  if (size <= kMaxValueBytes) return {};
  return invalid_argument(
      cat("the value of '", printable(key), "' is longer than ", kMaxValueBytes, " bytes"));
}

}  // namespace hvd::rendezvous
