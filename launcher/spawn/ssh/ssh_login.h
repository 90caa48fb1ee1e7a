// The parameters of an ssh login: user, host and configuration. SshSpawner fills them before it connects; SshSession
// and SystemSsh read them. Connects nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_settings.h"

namespace hvd::launcher {

// The local user, whose ssh configuration applies.
struct SshUser {
  std::string name;
  std::string home;
  std::string directory;      // "~/.ssh"
  std::string system_config;  // "/etc/ssh/ssh_config"

  // Returns the user according to the password database, as ssh does.
  static SshUser current();
};

struct SshLogin {
  SpawnTarget target;
  SshSettings settings;
  SshUser user;
  std::string proxy_command =
      {};  // ProxyCommand of a shared connection to the jump host; empty: use the settings
};

// Returns the flags with which the ssh program connects to the user's target.
std::vector<std::string> ssh_flags(const SpawnTarget& target, const SshUser& user);

// Returns the destination's arguments for advice, after "ssh " or "ssh-copy-id ": "-p 2202 root@a".
std::string ssh_destination(const SpawnTarget& target);

// Runs ssh-keygen. If a certificate of the login has expired, returns a sentence with the end of
// its validity; else empty.
std::string expired_certificate(const SshLogin& login);

// Returns a command with which the user can test the host's login shell: "ssh -p 2202 root@a true".
std::string ssh_try_command(const SpawnTarget& target);

// Returns advice to use a key instead of a password. `accepts_keys`: the host's sshd accepts keys.
std::string password_advice(const SpawnTarget& target, bool accepts_keys);

// Expands ~, variables and tokens in a path; returns nothing if the path has an unknown token.
std::optional<std::string> expand_ssh_path(const std::string& path, const SshLogin& login);

std::optional<std::string> read_ssh_file(const std::string& path);

}  // namespace hvd::launcher
