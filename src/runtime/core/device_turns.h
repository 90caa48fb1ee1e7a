// Gives the device batches of all process sets one order on all ranks: NCCL kernels that start in different orders on
// two devices can wait for each other forever. The root of a set requests a turn for each of its plans with device
// batches, and the root of all ranks broadcasts the turns in the order of the requests. A plan of the global process
// set needs no request: each link of the tree delivers such plans and the turns in the order in which the root sent
// them. A job without other sets sends no message for the order. The runtime core owns DeviceTurns. Lives on the
// progress thread.
#pragma once

#include <cstdint>

#include "runtime/telemetry/service.h"

namespace hvd::runtime {

class RuntimeCore;

class DeviceTurns final : public Service {
 public:
  explicit DeviceTurns(RuntimeCore* core) : core_(core) {}
  // Requests a turn for a plan that the root of the set has sent.
  void request(uint32_t serial);
  void receive(int32_t from, ByteView message) override;

 private:
  RuntimeCore* const core_;
};

}  // namespace hvd::runtime
