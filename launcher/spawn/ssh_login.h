// Who logs in where: the user's side of an ssh connection, before anything is connected.
#pragma once

#include <string>

#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh_config.h"

namespace hvd::launcher {

// Whose ssh configuration counts.
struct SshUser {
  std::string name;
  std::string home;
  std::string directory;      // "~/.ssh"
  std::string system_config;  // "/etc/ssh/ssh_config"

  // By the password database, as ssh itself finds it.
  static SshUser current();
};

struct SshLogin {
  SpawnTarget target;
  SshConfig config;
  SshUser user;
};

}  // namespace hvd::launcher
