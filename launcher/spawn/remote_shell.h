// The interface of a shell on one host, which runs commands through the user's login shell.
// SshSession (libssh), SystemSsh and CommandSpawner's shell implement it. Lives on the launcher's
// loop.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"

namespace hvd::launcher {

class RemoteShell {
 public:
  virtual ~RemoteShell() = default;
  // Runs a command and returns its stream, which may outlive this object.
  virtual net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) = 0;
  // Returns the name of the remote process that ends if a command's stream ends without output.
  virtual std::string who_ended() const { return "the login shell"; }
  // Returns a command with which the user can test the shell, or an empty text.
  virtual std::string try_command() const { return {}; }
};

}  // namespace hvd::launcher
