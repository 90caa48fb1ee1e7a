// The interfaces of a stream to an agent, of a shell on a host, and of a spawner, which starts an agent on a host.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

// The interface of a stream between the launcher and one agent: an ssh channel, a local child's pipes, or a
// connection that the agent opened. A stream lives on the launcher's loop, with one reader and one writer at a
// time.
class Duplex {
 public:
  virtual ~Duplex() = default;

  // Reads at least one byte; returns 0 at the end of the stream. An error states why the
  // stream broke.
  virtual net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) = 0;
  // Writes all bytes.
  virtual net::Task<Status> write(ByteView bytes) = 0;
  // After this call, a stream that loses its connection waits this long for another one, if it can get one. Before the
  // call, and with 0 seconds, losing the connection ends the stream. `silence_seconds`: the caller gives up after this
  // time without a reply; 0: never.
  virtual void survive(double /*seconds*/, double /*silence_seconds*/) {}
  // Informs the stream that the peer has not replied for this time; called repeatedly. The stream may open
  // another connection early enough, and uses the current connection until then.
  virtual void on_silence(double /*seconds*/) {}
  // Ends the stream at once, and wakes the reader and the writer. The peer detects the end.
  virtual void close() = 0;
  // Returns what the peer, for example a shell, wrote to standard error outside the protocol, and the remote
  // process's exit status if known, for messages. May be empty.
  virtual std::string last_words() const = 0;
};

// The interface of a shell on one host, which runs commands. SshSession (libssh) and SystemSsh implement it with the
// user's login shell, and CommandSpawner with /bin/sh. Lives on the launcher's loop.
class RemoteShell {
 public:
  virtual ~RemoteShell() = default;
  // Runs a command and returns its stream, which may outlive this object.
  virtual net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) = 0;
  // Returns the process that an error names if a command's stream ends without output.
  virtual std::string who_ended() const { return "the login shell"; }
  // Returns a command with which the user can test the shell, or an empty text.
  virtual std::string try_command() const { return {}; }
};

// The stages of a start, in this order. A message about a slow host names its stage.
enum class SpawnStage {
  kConfigure,
  kResolve,
  kConnect,
  kRetry,  // waits before the next try, because sshd has closed the connection before the key exchange
  kAuthenticate,
  kSendAgent,
  kStartAgent,
  kReady
};
constexpr std::string_view to_string(SpawnStage stage) {
  constexpr std::string_view kNames[] = {"configure",     "resolve",      "connect",
                                         "connect again", "authenticate", "send agent",
                                         "start agent",   "ready"};
  static_assert(std::size(kNames) == static_cast<size_t>(SpawnStage::kReady) + 1);
  return kNames[static_cast<size_t>(stage)];
}

struct SpawnTarget {
  std::string host;           // a name or an address, in the user's spelling
  std::string user;           // empty: ssh's own default
  int port = 0;               // 0: ssh's own default
  std::string identity_file;  // empty: ssh's own default
  std::string agent_path;     // path of this build's horovod-agent on the launcher's machine
  std::string agent_dir;      // HOROVOD_AGENT_DIR of the user, or empty
  bool may_ask = true;        // whether the target's `command` may ask the user for a password
  bool may_share = true;      // whether ssh may use another ssh's connection (ControlPath)
  std::string command;        // starts a shell on the host, for CommandSpawner; empty: ssh
  bool may_be_local = true;   // whether the agent may be a child process if `host` is this machine
  // `command` starts a step of Slurm: the launcher made it, and messages do not show it.
  bool is_step = false;
};

// The interface of a spawner, which starts an agent on a host: as a local child, over ssh, and so on. Lives on the
// launcher's loop; many spawns run at once.
class Spawner {
 public:
  virtual ~Spawner() = default;
  // Starts an agent and returns the stream to it. Calls `on_stage` at each stage of the start. The
  // caller limits the time by cancelling (asio cancellation), which closes everything. An error is
  // one sentence about this host, without its name: the caller prepends it.
  virtual net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) = 0;
  // Returns a command with which the user can test the host's login shell, or an empty text.
  virtual std::string try_command(const SpawnTarget&) const { return {}; }
};

}  // namespace hvd::launcher
