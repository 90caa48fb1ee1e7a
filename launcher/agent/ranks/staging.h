// Files that the launcher sends to this host, such as the copy of the user's code (--stage), in a private directory
// that is removed when the job ends. The agent's main() chooses the directory's name before the fork, so that the
// guardian can also remove the directory.
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/unique_fd.h"
#include "launcher/protocol/program.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// Returns a path in TMPDIR or /tmp with an unpredictable name.
std::string staging_directory();
void remove_staging(const std::string& directory);
// Returns a sentence about the files that the job has written or changed in the copy after `since`, a time of the file
// system's clock; or an empty text. Ignores Python's __pycache__ folders.
std::string describe_written_files(const std::string& directory, const timespec& since);

// The default advice in errors: TMPDIR of the host chooses the directory.
inline constexpr const char* kChooseByTmpdir =
    "set TMPDIR to a directory with free space in the start-up files of that host's shell";

class Staging {
 public:
  // `advice`: how the user can choose another directory.
  explicit Staging(std::string directory, std::string advice = kChooseByTmpdir)
      : directory_(std::move(directory)), advice_(std::move(advice)) {}

  const std::string& directory() const { return directory_; }
  // Writes the next part of the copy. The last part contains the digest of all other parts. After an error, returns the
  // same error for the parts that the launcher had already sent.
  Status take(const StagePart& part);
  // Writes a part of a file that the caller compares with the file's own digest. The last file may begin again.
  Status write(const StagePart& part);
  uint64_t taken() const { return taken_; }
  // Returns whether the last part has arrived, with the digest of the other parts.
  bool is_whole() const { return is_whole_; }
  // Changes the working directory, PYTHONPATH and HOROVOD_STAGE_DIR of the job's commands to the copy.
  // `environment`: the agent's own environment, to which the job's variables are added.
  Status enter(HostJob& job, const Environment& environment) const;
  void remove();
  // Transfers the removal to the caller. Returns the directory, or an empty string if none was created.
  std::string release();
  // Returns the time at which the copy was complete, by the clock of its file system; unset while it is incomplete.
  const std::optional<timespec>& whole_since() const { return whole_since_; }

 private:
  Status add(const StagePart& part);
  Status make_directory();
  Status failed_at(const std::string& path, int error) const;

  std::string directory_;
  std::string advice_;
  bool is_there_ = false;
  bool is_whole_ = false;
  std::optional<timespec> whole_since_ = std::nullopt;
  std::string path_;
  UniqueFd file_;  // the file that is being written
  uint64_t taken_ = 0;
  Status failure_;  // the first error of take()
  Digest digest_{};
};

}  // namespace hvd::launcher
