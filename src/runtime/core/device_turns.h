// Defines one order of the device batches of all process sets of the job: two NCCL kernels that wait
// for each other's ranks in different orders can block two devices forever. The root of a set requests
// a turn for each of its plans with such batches, and the root of all ranks broadcasts the turns in the
// order of the requests. Messages of a service and plans of the set of all ranks keep their order on
// each link of the tree, and a plan of that set needs no request: a job without other sets sends no
// message for the order. The runtime core owns DeviceTurns. Lives on the progress thread.
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
