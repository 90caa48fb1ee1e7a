// A Condition for several concurrent transfers over peer streams, ready when all are complete. Transfers
// on one stream in one direction run in the order in which they were added.
#pragma once

#include <utility>
#include <vector>

#include "collectives/algorithms/flow.h"
#include "collectives/mesh/peer_stream.h"

namespace hvd::collectives {

class ConcurrentTransfers final : public Condition {
 public:
  void send(PeerStream& peer_stream, const std::byte* data, size_t size);
  void receive(PeerStream& peer_stream, std::byte* data, size_t size);
  bool ready() override;
  // Returns a peer whose stream has ended, or -1.
  int waits_for() const override { return waits_for_; }

 private:
  struct Transfer {
    PeerStream* peer_stream;
    std::byte* data;
    size_t left;
    bool sends;
  };
  static bool move(Transfer& transfer);
  std::vector<Transfer> transfers_;
  std::vector<std::pair<PeerStream*, bool>>
      stuck_;        // streams and directions that are blocked in this pass
  size_t done_ = 0;  // transfers at the front that are complete
  int waits_for_ = -1;
};

}  // namespace hvd::collectives
