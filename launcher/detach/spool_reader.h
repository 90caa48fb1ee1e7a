// Reads the spool of a detached job, while the job runs and afterwards. Needs no answer from the launcher.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// Takes the next lines off the front of a spool file's bytes; none while they are not whole. An error:
// nothing that follows in this file can be read.
Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes);

class SpoolReader {
 public:
  // `pid`: of the launcher. kNotFound when it has no spool below `parent`.
  static Result<std::unique_ptr<SpoolReader>> open(const std::string& parent,
                                                   const std::string& pid);

  // The next lines; none when all has been read that is there.
  std::optional<OutputChunk> next();
  // Whether the oldest output was gone at the first next(), since the spool had no room for it.
  bool begins_late() const { return begins_late_; }
  // Whether the launcher lives. Read on after it has ended.
  bool is_running() const;
  // None: the launcher has not reported the end of its job.
  std::optional<int> exit_code() const;
  // Waits until there may be more to read, the launcher has ended, or one of `others` is readable.
  void wait(std::span<const int> others = {});
  // Removes the spool, unless another process reads it. Call last.
  void remove();

 private:
  SpoolReader(std::string parent, std::string pid)
      : parent_(std::move(parent)), pid_(std::move(pid)) {}
  Status begin();
  bool read_more();
  bool go_to_next_file();

  const std::string parent_, pid_;
  UniqueFd folder_;  // with a shared lock
  UniqueFd state_;
  UniqueFd changes_;   // inotify
  UniqueFd launcher_;  // pidfd; none when it has ended before
  UniqueFd file_;
  int64_t number_ = -1;  // number of file_ in the spool
  std::string bytes_;    // read, from position_ on not yet taken
  size_t position_ = 0;
  bool is_damaged_ = false;  // the rest of file_ cannot be read
  bool has_gap_ = false;     // files between the last one and this one are gone
  bool begins_late_ = false;
};

}  // namespace hvd::launcher
