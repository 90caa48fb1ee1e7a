// One authenticated connection to a host by libssh, driven by the loop: a wait suspends only its coroutine. Each
// command runs in its own channel of this connection. A build without libssh has the same interface
// (without_libssh.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "net/asio.h"

namespace hvd::launcher {

class SshConnection;

// Describes a failed login by libssh, for the choice of the next try.
struct SshFailure {
  std::string beyond_libssh;  // why the system's ssh may succeed; may be empty
  bool is_refusal = false;    // the host refused the login for an unknown reason
  // The connection was closed before the key exchange: another try may succeed.
  bool is_hung_up = false;
};

class SshSession : public RemoteShell {
 public:
  // Returns whether this build can use libssh.
  static bool is_built();

  // Returns the position of a @cert-authority line for the host; empty if no such line exists or libssh is missing.
  static std::string authority_of(const SshSettings& settings);

  // Connects to the host and logs in. A failed call sets `failure`.
  static net::Task<Result<std::unique_ptr<SshSession>>> open(
      SshLogin login, std::function<void(SpawnStage)> on_stage, SshFailure& failure);
  ~SshSession() override;

  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) override;
  std::string try_command() const override { return try_command_; }

 private:
  SshSession(std::shared_ptr<SshConnection> connection, std::string try_command);
  std::shared_ptr<SshConnection> connection_;
  std::string try_command_;
};

}  // namespace hvd::launcher
