// The login of an ssh connection: user, host and configuration, before anything is connected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_settings.h"

namespace hvd::launcher {

// The user whose ssh configuration applies.
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
  SshSettings settings;
  SshUser user;
};

// The flags that make the ssh program go where the user sent this launcher.
std::vector<std::string> ssh_flags(const SpawnTarget& target, const SshUser& user);

// For advice, behind "ssh " or "ssh-copy-id ": "-p 2202 root@a".
std::string ssh_destination(const SpawnTarget& target);

// A command that shows the user how the host's login shell behaves: "ssh -p 2202 root@a true".
std::string ssh_try_command(const SpawnTarget& target);

// How to come from a password to a key; `accepts_keys`: the host's sshd takes them.
std::string password_advice(const SpawnTarget& target, bool accepts_keys);

// The path with its ~, variables and tokens expanded; nothing when it holds an unknown token.
std::optional<std::string> expand_ssh_path(const std::string& path, const SshLogin& login);

// A file's content, or nothing when it cannot be read.
std::optional<std::string> read_ssh_file(const std::string& path);

}  // namespace hvd::launcher
