// The environment of --stage-env on this host: files from the launcher, installed once for a Python of this host and
// reused by later jobs. The environment's name contains a hash of the list of files and of the Python. One thread at a
// time.
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

  // Searches these folders (environment_folders) for the complete environment, and locks it. `python`: path and version
  // of the interpreter on which the environment is based.
  bool find(const EnvironmentOffer& offer, const std::string& python,
            const std::vector<std::string>& folders);
  // Call after find(). Chooses the first folder with enough space, and writes the list of files to it. The error states
  // why no folder can be used.
  Status expect(const EnvironmentOffer& offer, const std::vector<std::string>& folders);
  Status write(const StagePart& part) { return folder_.write(part); }
  // Returns the folder to which write() writes.
  const std::string& parts() const { return folder_.parts(); }
  // Call after the last part. Returns the command that installs the files. The command needs no network.
  RankCommand installation(const std::string& interpreter) const;
  // Call after the command of installation() has ended. Gives the environment its name, and locks it. The files stay
  // until remove_parts(), since other hosts may need them.
  Status keep();
  bool has_parts() const { return folder_.has_parts(); }
  void remove_parts() { folder_.remove_parts(); }
  // Activates the environment for the ranks: sets VIRTUAL_ENV and PATH, and replaces a Python that the command names.
  void enter(Environment& environment, std::vector<std::string>& command) const;

 private:
  std::string name_;
  KeptFolder folder_;
};

}  // namespace hvd::launcher
