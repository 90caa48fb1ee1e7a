// Starts agents over ssh: one connection per host by libssh, all at once on the loop's thread, or by
// the system's ssh where the user's configuration needs a feature that libssh lacks. HostStartup owns
// it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "launcher/spawn/ssh/ssh_query.h"

namespace hvd::launcher {

class SshSpawner : public Spawner {
 public:
  explicit SshSpawner(SshUser user = SshUser::current()) : user_(user), query_(std::move(user)) {}

  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;
  std::string try_command(const SpawnTarget& target) const override;

 private:
  Result<std::shared_ptr<const AgentFile>> agent_file(const std::string& path);
  net::Task<Result<SshLogin>> login_to(const SpawnTarget& target);

  SshUser user_;
  SshQuery query_;
  std::map<std::string, std::shared_ptr<const AgentFile>> agents_;  // by path
};

}  // namespace hvd::launcher
