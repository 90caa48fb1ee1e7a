// Starts this build's agent through a RemoteShell, and first copies it when the host lacks it. The
// file has the agent's hash as its name, and lies in the first directory that is writable and
// executable. One remote command does all steps, so that an agent that is there costs one round trip.
// SshSpawner calls it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/spawn/duplex.h"
#include "launcher/spawn/remote_shell.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

// The agent of this build, read once for all hosts.
struct AgentFile {
  std::string name;     // "horovod-agent-" and the hash of the content
  std::string machine;  // as uname -m says it, or empty: runs anywhere
  Bytes content;

  static Result<std::shared_ptr<const AgentFile>> load(const std::string& path);
};

// `directory` is the user's choice or empty. The stream begins with the agent's first byte.
net::Task<Result<std::unique_ptr<Duplex>>> start_agent(RemoteShell& shell,
                                                       std::shared_ptr<const AgentFile> agent,
                                                       std::string directory,
                                                       std::function<void(SpawnStage)> on_stage);

// The remote command: /bin/sh's, whatever the login shell is. Its lines to us begin with `mark`.
// `refused` are directories not to be tried again, each between colons: ":/a:/b:".
std::string agent_command(const AgentFile& agent, std::string_view directory,
                          std::string_view refused, std::string_view mark);

// The first line that begins with `mark`, within text that may begin with a login shell's noise.
struct MarkedLine {
  std::string words;  // after the mark
  size_t end = 0;     // of the line, behind its newline
};
std::optional<MarkedLine> find_marked_line(std::string_view text, std::string_view mark);

}  // namespace hvd::launcher
