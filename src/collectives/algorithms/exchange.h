// Several transfers over lanes at once; ready when all are through. Transfers of one lane and
// direction go in the order in which they were added.
#pragma once

#include <utility>
#include <vector>

#include "collectives/algorithms/flow.h"
#include "collectives/mesh/lane.h"

namespace hvd::collectives {

class Exchange final : public Condition {
 public:
  void send(Lane& lane, const std::byte* data, size_t size);
  void receive(Lane& lane, std::byte* data, size_t size);
  bool ready() override;
  // A peer whose stream has ended.
  int waits_for() const override { return waits_for_; }

 private:
  struct Transfer {
    Lane* lane;
    std::byte* data;
    size_t left;
    bool sends;
  };
  static bool move(Transfer& transfer);
  std::vector<Transfer> transfers_;
  std::vector<std::pair<Lane*, bool>>
      stuck_;        // streams and directions with something left, in one pass
  size_t done_ = 0;  // transfers at the front that need no more looks
  int waits_for_ = -1;
};

}  // namespace hvd::collectives
