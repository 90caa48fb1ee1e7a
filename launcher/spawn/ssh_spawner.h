// Brings agents up over ssh: one connection per host by libssh, all of them at once on the loop's
// thread; the system's ssh where the user's configuration needs what libssh does not do.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh_login.h"

namespace hvd::launcher {

class SshSpawner : public Spawner {
 public:
  explicit SshSpawner(SshUser user = SshUser::current()) : user_(std::move(user)) {}

  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  Result<std::shared_ptr<const AgentFile>> agent_file(const std::string& path);
  SshConfig config_of(const SpawnTarget& target) const;

  SshUser user_;
  std::map<std::string, std::shared_ptr<const AgentFile>> agents_;  // by path
};

}  // namespace hvd::launcher
