// Reads hosts' settings from the system's ssh. The first `ssh -G` of each user, port and identity file runs alone: if
// no line of ssh's configuration depends on the host, its answer serves all hosts with canonical names. Otherwise one
// `ssh -G` runs per host, all in parallel. Lives on the launcher's loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/result.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "launcher/spawn/ssh/ssh_settings.h"
#include "net/asio.h"

namespace hvd::launcher {

class SshQuery {
 public:
  explicit SshQuery(SshUser user) : user_(std::move(user)) {}
  // Returns the settings of a host. An error is ssh's own message about its configuration.
  net::Task<Result<SshSettings>> settings_of(const SpawnTarget& target);

 private:
  struct Answer;
  struct Group;

  net::Task<Result<Answer>> ask(const SpawnTarget& target) const;
  Answer without_ssh(const SpawnTarget& target, const std::string& why) const;

  SshUser user_;
  // Groups of hosts that can share one answer, by user, port and key.
  std::map<std::tuple<std::string, int, std::string>, std::shared_ptr<Group>> groups_;
};

}  // namespace hvd::launcher
