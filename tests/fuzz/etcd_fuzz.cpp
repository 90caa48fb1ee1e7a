// Replies of etcd with records of an earlier server, and etcd addresses from users: the parser
// refuses them or returns valid parts.
#include <algorithm>

#include "base/json_text.h"
#include "fuzz/target.h"
#include "rendezvous/etcd/etcd_access.h"
#include "rendezvous/etcd/etcd_text.h"

namespace {

using hvd::rendezvous::Records;

size_t bytes_of(const Records& records) {
  size_t bytes = 0;
  for (const auto& [key, value] : records) bytes += value.size();
  return bytes;
}

// Any keys and values: each byte of a piece is in the record that names it, or in no record.
void check_joined(const std::vector<hvd::rendezvous::etcd::KeyValue>& found) {
  using namespace hvd::rendezvous::etcd;
  Records values, pieces;
  for (const KeyValue& one : found) {
    if (one.key.starts_with('r')) values.emplace(one.key, hvd::to_bytes(one.value));
    if (one.key.starts_with('l')) pieces.emplace(one.key, hvd::to_bytes(one.value));
  }
  const auto joined = join_records(values, pieces);
  if (!joined.ok()) return;
  HVD_CHECK(joined->records.size() == values.size());
  size_t in_pieces = 0;
  for (const auto& [name, prefix] : joined->prefixes) {
    HVD_CHECK(pieces.empty() || !joined->stale.contains(piece_key(prefix, 0)));
    in_pieces += joined->records.find(name)->second.size();
  }
  HVD_CHECK(in_pieces + bytes_of(joined->stale) == bytes_of(pieces));
}

// Splits these bytes into records of 7 bytes, and into one record, and reads them back.
void check_written(hvd::ByteView record) {
  using namespace hvd::rendezvous::etcd;
  constexpr size_t kPiece = 7;
  const std::string prefix = "lserver1/";
  Records pieces;
  for (size_t begin = 0; begin < record.size(); begin += kPiece) {
    const auto piece = record.subspan(begin, std::min(kPiece, record.size() - begin));
    pieces.emplace(piece_key(prefix, begin / kPiece), hvd::Bytes(piece.begin(), piece.end()));
  }
  const auto joined = join_records({{"ra", hvd::to_bytes(value_in_pieces(record.size(), prefix))},
                                    {"rb", hvd::to_bytes(whole_value(record))}},
                                   pieces);
  HVD_CHECK(joined.ok() && joined->stale.empty());
  for (const char* name : {"a", "b"}) {
    HVD_CHECK(hvd::as_text(joined->records.at(name)) == hvd::as_text(record));
  }
}

}  // namespace

HVD_FUZZ_TARGET(etcd) {
  using namespace hvd::rendezvous::etcd;
  if (const auto range = parse_range(bytes); range.ok()) {
    for (const KeyValue& one : range->found) HVD_CHECK(!one.key.empty());
    check_joined(range->found);
  }
  check_written(bytes);
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
}
