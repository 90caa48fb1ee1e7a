// Starts agents on other hosts: by the target's command if it has one, else by ssh. HostStartup owns this object. Lives
// on the launcher's loop.
#pragma once

#include <memory>
#include <string>

#include "launcher/spawn/command_spawner.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_spawner.h"

namespace hvd::launcher {

class RemoteSpawner : public Spawner {
 public:
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override {
    return spawner_of(target).spawn(target, std::move(on_stage));
  }
  std::string try_command(const SpawnTarget& target) const override {
    return target.command.empty() ? ssh_.try_command(target) : by_command_.try_command(target);
  }

 private:
  Spawner& spawner_of(const SpawnTarget& target) {
    return target.command.empty() ? static_cast<Spawner&>(ssh_) : by_command_;
  }

  SshSpawner ssh_;
  CommandSpawner by_command_;
};

}  // namespace hvd::launcher
