// The interface of a spawner, which starts an agent on a host: as a local child, over ssh, and so on. Class Preflight
// calls spawn(). Lives on the launcher's loop; many spawns run at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"

namespace hvd::launcher {

// The stages of a start, in this order. A message about a slow host names its stage.
enum class SpawnStage {
  kConfigure,
  kResolve,
  kConnect,
  kRetry,  // waits before the next try, after a close before the key exchange
  kAuthenticate,
  kSendAgent,
  kStartAgent,
  kReady
};
std::string_view to_string(SpawnStage stage);  // "configure", "resolve", ...

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
  bool may_be_local = true;   // whether a name of this machine may get an agent as a child process
  // `command` starts a step of Slurm: the launcher made it, and messages do not show it.
  bool is_step = false;
};

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
