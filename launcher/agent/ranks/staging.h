// The copy of the user's code on this host (--stage): a private directory that is removed with the
// job. The agent's main chooses its name before the fork, so that the guardian can remove it too.
#pragma once

#include <string>

#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/unique_fd.h"
#include "launcher/program/program.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// Returns a path in TMPDIR or /tmp with an unpredictable name.
std::string staging_directory();
// Removes the directory, if it exists.
void remove_staging(const std::string& directory);

class Staging {
 public:
  explicit Staging(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  // Writes the next part of the copy. The last part holds the digest of all others.
  Status take(const StagePart& part);
  uint64_t taken() const { return taken_; }
  // Sets the working directory, PYTHONPATH and HOROVOD_STAGE_DIR of the job's commands to the copy.
  // `environment` is the agent's own, to which the job's is added.
  Status enter(HostJob& job, const Environment& environment) const;
  void remove();

 private:
  Status write(const StagePart& part);

  std::string directory_;
  bool is_there_ = false;
  bool is_whole_ = false;
  UniqueFd file_;  // the file that is being written
  uint64_t taken_ = 0;
  Digest digest_{};
};

}  // namespace hvd::launcher
