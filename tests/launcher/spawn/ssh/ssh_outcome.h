// An ssh spawner and a private sshd, for the tests of the spawner.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "launcher/spawn/ssh/ssh_spawner.h"
#include "tests/launcher/spawn/private_sshd.h"

namespace hvd::launcher {

// Skips a test case if sshd cannot run here, and prints the reason.
#define HVD_NEEDS_SSHD()                                     \
  if (const std::string why = why_no_sshd(); !why.empty()) { \
    MESSAGE("SKIP: " << why);                                \
    return;                                                  \
  }

// A program between ssh and the host, which makes the spawner use the system's ssh. At its end, ssh
// sends SIGHUP only to the command's process: another process that reads from the host would keep
// ssh's standard error open until sshd closes the connection (LoginGraceTime).
constexpr char kProxyCommand[] =
    "ProxyCommand bash -c 'exec 3<>/dev/tcp/127.0.0.1/%p 4<&0; cat <&4 >&3 & exec cat <&3'";

// Returns a user's configuration with these lines, for libssh or for the system's ssh.
inline SshUser user_of(PrivateSshd& sshd, bool by_system_ssh, std::vector<std::string> lines) {
  if (by_system_ssh) lines.emplace_back(kProxyCommand);
  return sshd.user(lines);
}

inline SpawnResult spawn(net::asio::io_context& loop, SshSpawner& spawner, SpawnTarget target) {
  return run_on(loop, spawner.spawn(target, [](SpawnStage) {}));
}

// Returns the output of an agent that started, or the reason why it did not start.
inline std::string outcome(SshUser user, SpawnTarget target) {
  net::asio::io_context loop(1);
  SshSpawner spawner(std::move(user));
  const std::string text = said_by(loop, spawn(loop, spawner, target));
  run_out(loop);
  return text;
}

inline std::string content_of(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hvd::launcher
