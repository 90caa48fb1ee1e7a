// Brings an agent up on this machine: as a child process, from where this build has it.
#pragma once

#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class LocalSpawner : public Spawner {
 public:
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;
};

}  // namespace hvd::launcher
