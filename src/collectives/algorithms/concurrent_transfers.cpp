#include "collectives/algorithms/concurrent_transfers.h"

#include <algorithm>

namespace hvd::collectives {

void ConcurrentTransfers::send(PeerStream& peer_stream, const std::byte* data, size_t size) {
  // The const_cast is safe: only a receive writes through this pointer.
  if (size > 0) transfers_.push_back({&peer_stream, const_cast<std::byte*>(data), size, true});
}

void ConcurrentTransfers::receive(PeerStream& peer_stream, std::byte* data, size_t size) {
  if (size > 0) transfers_.push_back({&peer_stream, data, size, false});
}

bool ConcurrentTransfers::move(Transfer& transfer) {
  const size_t moved = transfer.sends
                           ? transfer.peer_stream->write_some({transfer.data, transfer.left})
                           : transfer.peer_stream->read_some({transfer.data, transfer.left});
  transfer.data += moved;
  transfer.left -= moved;
  return transfer.left == 0;
}

bool ConcurrentTransfers::ready() {
  while (done_ < transfers_.size() && transfers_[done_].left == 0) ++done_;
  stuck_.clear();
  for (size_t i = done_; i < transfers_.size(); ++i) {
    Transfer& transfer = transfers_[i];
    const std::pair<PeerStream*, bool> direction(transfer.peer_stream, transfer.sends);
    if (transfer.left == 0 || std::find(stuck_.begin(), stuck_.end(), direction) != stuck_.end()) {
      continue;
    }
    if (!move(transfer)) stuck_.push_back(direction);
  }
  waits_for_ = -1;
  for (const auto& [peer_stream, sends] : stuck_) {
    if (peer_stream->ended()) waits_for_ = peer_stream->peer();
  }
  return stuck_.empty();
}

}  // namespace hvd::collectives
