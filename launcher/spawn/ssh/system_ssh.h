// The system's ssh program as a RemoteShell, for features that libssh lacks. Each command is a new ssh
// process, which never prompts.
#pragma once

#include <string>
#include <string_view>

#include "launcher/spawn/last_words.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_login.h"

namespace hvd::launcher {

class SystemSsh : public RemoteShell {
 public:
  // `accepts_new_key`: the host's key may be missing in all known_hosts files. `reason`: why the launcher does not use
  // libssh.
  SystemSsh(SshLogin login, bool accepts_new_key, std::string reason)
      : login_(std::move(login)), accepts_new_key_(accepts_new_key), reason_(std::move(reason)) {}
  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) override;
  std::string who_ended() const override { return "ssh"; }
  std::string try_command() const override { return ssh_try_command(login_.target); }

 private:
  SshLogin login_;
  bool accepts_new_key_;
  std::string reason_;
};

// Returns whether ssh's messages report that ssh refused a key because no file contains the key.
bool refused_new_key(std::string_view messages);

// Returns a filter that reports the key that ssh adds, and removes messages that only show the key.
LastWords::Filter new_key_filter(const SshLogin& login);

}  // namespace hvd::launcher
