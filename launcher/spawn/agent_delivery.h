// Starts this build's agent through a RemoteShell, and first copies the agent if the host lacks it. The file's name
// contains the agent's hash. The file lies in the first directory that is writable and executable, and that only this
// user and root can change. The remote command executes only a file in such a directory. The file's content must have
// the hash, or have just come from this launcher. One command does all steps, so that an agent that the host already
// has starts after one round trip.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

// The agent of this build, read once for all hosts.
struct AgentFile {
  std::string name;     // "horovod-agent-" and the hash of the content
  std::string machine;  // as printed by uname -m; empty: any machine
  Bytes content;

  static Result<std::shared_ptr<const AgentFile>> load(const std::string& path);
};

// `directory`: HOROVOD_AGENT_DIR, or empty. The returned stream begins with the agent's first byte.
net::Task<Result<std::unique_ptr<Duplex>>> start_agent(RemoteShell& shell,
                                                       std::shared_ptr<const AgentFile> agent,
                                                       std::string directory,
                                                       std::function<void(SpawnStage)> on_stage);

// Returns the remote command, a /bin/sh script that any login shell can start. The script begins its lines for the
// launcher with `mark`. `refused` lists directories to skip, separated by colons: ":/a:/b:".
std::string agent_command(const AgentFile& agent, std::string_view directory,
                          std::string_view refused, std::string_view mark);

// The first line with `mark` and a blank. Output of the login shell may precede the mark.
struct MarkedLine {
  std::string words;  // after the mark
  size_t end = 0;     // position after the line's newline
};
std::optional<MarkedLine> find_marked_line(std::string_view text, std::string_view mark);

}  // namespace hvd::launcher
