// Any proof or target of a request: an accepted text formats to a text that parses to the same.

#include "fuzz/target.h"
#include "rendezvous/wire/signature.h"
#include "rendezvous/wire/target.h"

HVD_FUZZ_TARGET(signature) {
  using namespace hvd::rendezvous;
  if (const auto proof = parse_proof(text); proof.ok()) {
    const auto again = parse_proof(to_string(*proof));
    HVD_CHECK(again.ok() && again->count == proof->count && again->body == proof->body &&
              again->signature == proof->signature);
  }
  if (const auto target = parse_target(text); target.ok()) {
    const auto again = parse_target(to_string(*target));
    HVD_CHECK(again.ok() && again->resource == target->resource && again->name == target->name &&
              again->query == target->query);
    (void)target->number("wait", 0, 100);
  }
  HVD_CHECK(!is_nonce(text) || text.size() == 32);
}
