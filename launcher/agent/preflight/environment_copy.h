// The environment of --stage-env on this host: files of the launcher, installed once for a Python of this host and
// reused by later jobs. Its name contains the hash of the list of the files, and the Python. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/preflight/kept_folder.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class EnvironmentCopy {
 public:
  EnvironmentCopy();

  // Looks for the whole environment in these folders (environment_folders), and locks it. `python`: path and version of
  // the interpreter below it.
  bool find(const EnvironmentOffer& offer, const std::string& python,
            const std::vector<std::string>& folders);
  // After find(): chooses the first folder that has room, and writes the list of the files there. An error says why
  // none has.
  Status expect(const EnvironmentOffer& offer, const std::vector<std::string>& folders);
  // Writes the next part of the files.
  Status write(const StagePart& part) { return folder_.write(part); }
  // Where write() writes them.
  const std::string& parts() const { return folder_.parts(); }
  // After the last part: the command that installs the files. It needs no network.
  RankCommand installation(const std::string& interpreter) const;
  // After that command: gives the environment its name, and locks it. The files stay until remove_parts(), for other
  // hosts.
  Status keep();
  bool has_parts() const { return folder_.has_parts(); }
  void remove_parts() { folder_.remove_parts(); }
  // Puts the environment before all others of the ranks: variables and, where the command names a Python, that of the
  // environment.
  void enter(Environment& environment, std::vector<std::string>& command) const;

 private:
  std::string name_;
  KeptFolder folder_;
};

}  // namespace hvd::launcher
