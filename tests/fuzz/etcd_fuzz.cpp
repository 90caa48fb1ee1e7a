// Replies of etcd, and addresses of etcd that users write: the parser refuses them or returns valid
// parts.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/json_text.h"
#include "rendezvous/etcd/etcd_text.h"
#include "rendezvous/etcd/etcd_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::rendezvous::etcd;
  const hvd::ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  const std::string_view text = hvd::as_text(bytes);
  if (const auto range = parse_range(bytes); range.ok()) {
    for (const KeyValue& one : range->found) HVD_CHECK(!one.key.empty());
  }
  if (const auto txn = parse_txn(bytes); txn.ok()) HVD_CHECK(!txn->is_done || !txn->held);
  if (const auto lease = parse_lease(bytes); lease.ok()) HVD_CHECK(lease->seconds >= 0);
  if (const auto token = parse_login(bytes); token.ok()) {
    HVD_CHECK(!token->empty() && token->find_first_of(" \r\n") == std::string::npos);
  }
  HVD_CHECK(parse_fault(bytes).code > 0);
  if (const auto decoded = hvd::from_base64(std::string(text)); decoded.ok()) {
    HVD_CHECK(hvd::to_base64(*decoded) == text);
  }
  const auto again = hvd::from_base64(hvd::to_base64(text));
  HVD_CHECK(again.ok() && *again == text);
  if (const auto url = parse_url(text); url.ok()) {
    HVD_CHECK(!url->endpoints.empty());
    for (const auto& endpoint : url->endpoints) HVD_CHECK(endpoint.port != 0);
  }
  return 0;
}
