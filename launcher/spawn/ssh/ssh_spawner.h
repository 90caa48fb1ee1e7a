// Starts agents over ssh: one connection per host by libssh, all concurrently on the loop's thread, or by
// the system's ssh if the user's configuration needs a feature that libssh lacks. RemoteSpawner owns this
// object.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/command_spawner.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/jump_connections.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "launcher/spawn/ssh/ssh_query.h"

namespace hvd::launcher {

class SshSpawner : public Spawner {
 public:
  // `retry_after`: the wait before the first retry if sshd closed the connection before the key exchange.
  explicit SshSpawner(SshUser user = SshUser::current(),
                      std::chrono::milliseconds retry_after = std::chrono::milliseconds(500))
      : user_(user), retry_after_(retry_after), query_(user), jumps_(std::move(user)) {}

  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;
  std::string try_command(const SpawnTarget& target) const override;

 private:
  struct Refusal;
  using OnStage = std::function<void(SpawnStage)>;
  using Stream = Result<std::unique_ptr<Duplex>>;

  Result<std::shared_ptr<const AgentFile>> agent_file(const std::string& path);
  net::Task<Result<SshLogin>> login_to(const SpawnTarget& target);
  net::Task<Stream> connect(SshLogin login, std::shared_ptr<const AgentFile> agent,
                            const OnStage& on_stage, bool& is_hung_up);
  net::Task<Stream> connect_by_system_ssh(SshLogin login, std::shared_ptr<const AgentFile> agent,
                                          const OnStage& on_stage, std::string reason);

  SshUser user_;
  std::chrono::milliseconds retry_after_;
  SshQuery query_;
  JumpConnections jumps_;
  // Results of logins by the system's ssh after libssh was refused, by user and keys.
  std::map<std::string, std::shared_ptr<Refusal>> refusals_;
  std::map<std::string, std::shared_ptr<const AgentFile>> agents_;  // by path
};

// Starts agents on other hosts: by the target's command if it has one, else by ssh. HostStartup owns this object. Lives
// on the launcher's loop.
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
