// The table of hosts that a leader sends to its members.
#include <cstdlib>

#include "collectives/mesh/local_rendezvous.h"
#include "fuzz/target.h"

HVD_FUZZ_TARGET(leader_table) {
  const auto leaders = hvd::collectives::decode_leaders(bytes, size / 4 - (size >= 4 ? 1 : 0));
  if (!leaders.ok()) return;
  for (size_t rank = 0; rank < leaders->size(); ++rank) {
    if (static_cast<size_t>((*leaders)[rank]) > rank) std::abort();
  }
}
