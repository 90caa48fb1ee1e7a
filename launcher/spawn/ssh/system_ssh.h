// The system's ssh program as a RemoteShell, for features that libssh lacks. Each command is a new ssh
// process, which never prompts.
#pragma once

#include <string>
#include <vector>

#include "launcher/spawn/remote_shell.h"
#include "launcher/spawn/ssh/ssh_login.h"

namespace hvd::launcher {

class SystemSsh : public RemoteShell {
 public:
  explicit SystemSsh(SshLogin login) : login_(std::move(login)) {}
  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) override;
  std::string who_ended() const override { return "ssh"; }
  std::string try_command() const override { return ssh_try_command(login_.target); }

 private:
  SshLogin login_;
};

std::vector<std::string> system_ssh_command(const SshLogin& login, std::string command);

}  // namespace hvd::launcher
