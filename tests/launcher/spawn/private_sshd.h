// A private sshd on a free loopback port, run as the current user, with host key, client key,
// known_hosts, ssh configuration and home directory in a scratch folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/spawn/ssh/ssh_login.h"
#include "tests/conformance/spawner_conformance.h"

namespace hvd::launcher {

// Returns the reason why sshd cannot run here, or an empty string.
std::string why_no_sshd();

class PrivateSshd {
 public:
  // `options` are lines of sshd_config that precede the default lines.
  explicit PrivateSshd(const std::vector<std::string>& options = {});
  PrivateSshd(const PrivateSshd&) = delete;
  ~PrivateSshd();

  int port() const { return port_; }
  ScratchFolder& scratch() { return scratch_; }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  // A user whose ~/.ssh/config has `lines` and then sends every host to this sshd.
  SshUser user(const std::vector<std::string>& lines = {});
  // The target "127.0.0.1", with the agent in the scratch folder.
  SpawnTarget target(const std::string& agent_script);
  // The line "[127.0.0.1]:port type key" for known_hosts.
  std::string known_hosts_line() const;

 private:
  bool start(const std::vector<std::string>& options);

  ScratchFolder scratch_;
  int port_ = 0;
  int pid_ = -1;
};

// Runs a program to its end and returns its exit status.
int run_program(const std::vector<std::string>& arguments);

}  // namespace hvd::launcher
