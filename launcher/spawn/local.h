// Starts this build's agent on this machine as a child process. HostStartup owns this object.
#pragma once

#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class LocalSpawner : public Spawner {
 public:
  // `is_bare`: the agent gets only the login variables of this process.
  explicit LocalSpawner(bool is_bare = false) : is_bare_(is_bare) {}
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  bool is_bare_;
};

}  // namespace hvd::launcher
