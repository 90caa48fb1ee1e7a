// Starts agents with a target's command, which opens a stream to a host: "docker exec -i {host}", "kubectl
// exec -i {host} --", or another ssh. The command must forward standard input. RemoteSpawner owns this
// object.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

// Starts this build's agent on this machine as a child process. HostStartup owns this object.
class LocalSpawner : public Spawner {
 public:
  // `is_bare`: the agent gets only the login variables of this process.
  explicit LocalSpawner(bool is_bare = false) : is_bare_(is_bare) {}
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  bool is_bare_;
};

class CommandSpawner : public Spawner {
 public:
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  std::map<std::string, std::shared_ptr<const AgentFile>> agents_;  // by path
};

// Returns the command for one host, for /bin/sh: {host}, {user} and {port} are replaced, and "/bin/sh" is appended. If
// {host} is missing, the name is appended; if {user} is missing, a given user precedes the name (user@host).
std::string command_line(std::string command, const SpawnTarget& target);

}  // namespace hvd::launcher
