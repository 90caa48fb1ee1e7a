// Runs commands on one host through the user's login shell. The interface below SshSpawner: one
// connection by libssh, or the system's ssh. Lives on the launcher's loop.
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
  // The stream may outlive this object.
  virtual net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) = 0;
  // The process to blame when a command's stream ends before the command has written a word.
  virtual std::string who_ended() const { return "the login shell"; }
  // A command that shows the user what that shell does, or empty.
  virtual std::string try_command() const { return {}; }
};

}  // namespace hvd::launcher
