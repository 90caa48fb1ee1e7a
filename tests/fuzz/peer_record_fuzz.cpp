// A rank's address record: a record that parses encodes to the same bytes.
#include <cstdlib>

#include "collectives/mesh/handshake.h"
#include "fuzz/target.h"

HVD_FUZZ_TARGET(peer_record) {
  const auto record = hvd::collectives::PeerRecord::decode(bytes);
  if (!record.ok()) return;
  const hvd::Bytes again = record->encode();
  const auto second = hvd::collectives::PeerRecord::decode(again);
  if (!second.ok() || second->encode() != again) std::abort();
}
