#include "collectives/algorithms/exchange.h"

#include <algorithm>

namespace hvd::collectives {

void Exchange::send(Lane& lane, const std::byte* data, size_t size) {
  // Never written through: a transfer that sends only reads.
  if (size > 0) transfers_.push_back({&lane, const_cast<std::byte*>(data), size, true});
}

void Exchange::receive(Lane& lane, std::byte* data, size_t size) {
  if (size > 0) transfers_.push_back({&lane, data, size, false});
}

bool Exchange::move(Transfer& transfer) {
  const size_t moved = transfer.sends ? transfer.lane->write_some({transfer.data, transfer.left})
                                      : transfer.lane->read_some({transfer.data, transfer.left});
  transfer.data += moved;
  transfer.left -= moved;
  return transfer.left == 0;
}

bool Exchange::ready() {
  while (done_ < transfers_.size() && transfers_[done_].left == 0) ++done_;
  stuck_.clear();
  for (size_t i = done_; i < transfers_.size(); ++i) {
    Transfer& transfer = transfers_[i];
    const std::pair<Lane*, bool> direction(transfer.lane, transfer.sends);
    if (transfer.left == 0 || std::find(stuck_.begin(), stuck_.end(), direction) != stuck_.end()) {
      continue;
    }
    if (!move(transfer)) stuck_.push_back(direction);
  }
  waits_for_ = -1;
  for (const auto& [lane, sends] : stuck_) {
    if (lane->ended()) waits_for_ = lane->peer();
  }
  return stuck_.empty();
}

}  // namespace hvd::collectives
