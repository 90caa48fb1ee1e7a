// One connection to each jump host of ProxyJump, shared by all hosts behind it: a jump host's sshd refuses many
// connections at once (MaxStartups). A connection is an `ssh` with a control socket, and ends with this object, also if
// the launcher is killed. SshSpawner owns this object. Lives on the launcher's loop.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

class ChildProcess;

class JumpConnections {
 public:
  explicit JumpConnections(SshUser user);
  ~JumpConnections();

  // Returns a ProxyCommand that shares the connection to `jump`, a value of ProxyJump; opens the connection
  // first if necessary. An empty result means that hosts use their ProxyJump, since this machine cannot create a
  // control socket or the user has a shared connection to the jump host. An error is one sentence about the jump
  // host; all callers that waited for the same attempt get this error.
  net::Task<Result<std::string>> proxy_command(std::string jump);

 private:
  struct Connection;

  net::Task<Status> open(Connection& connection, const std::string& jump) const;
  std::vector<std::string> flags_to(const std::string& jump) const;

  SshUser user_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;  // by value of ProxyJump
};

}  // namespace hvd::launcher
