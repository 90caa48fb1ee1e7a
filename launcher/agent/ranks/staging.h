// The copy of the user's code on this host (--stage): a private directory that is removed with the
// job. Its name is chosen before the fork of the agent, so that the guardian can remove it too.
#pragma once

#include <string>

#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/unique_fd.h"
#include "launcher/program/program.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// In TMPDIR, or /tmp; nobody else can know it.
std::string staging_directory();
// Nothing happens when there is none.
void remove_staging(const std::string& directory);

class Staging {
 public:
  explicit Staging(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  // The parts in their order; the last one holds the digest of all others.
  Status take(const StagePart& part);
  uint64_t taken() const { return taken_; }
  // Tells the job's commands where it is: working directory, PYTHONPATH and HOROVOD_STAGE_DIR.
  // `environment` is what the agent's own lies under the job's.
  Status enter(HostJob& job, const Environment& environment) const;
  void remove();

 private:
  Status write(const StagePart& part);

  std::string directory_;
  bool is_there_ = false;
  bool is_whole_ = false;
  UniqueFd file_;  // that is being written
  uint64_t taken_ = 0;
  Digest digest_{};
};

}  // namespace hvd::launcher
