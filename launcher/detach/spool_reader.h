// Reads the spool of a detached job, while the job runs and afterwards. Needs no answer from the launcher.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"
#include "launcher/state/log_reader.h"

namespace hvd::launcher {

class SpoolReader {
 public:
  // `pid`: of the launcher. kNotFound when it has no spool below `parent`.
  static Result<std::unique_ptr<SpoolReader>> open(const std::string& parent,
                                                   const std::string& pid);

  // The next lines; none when all has been read that is there.
  std::optional<OutputChunk> next() { return output_.next(); }
  // Whether the oldest output was gone at the first next(), since the spool had no room for it.
  bool begins_late() const { return output_.begins_late(); }
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

  const std::string parent_, pid_;
  UniqueFd folder_;  // with a shared lock
  UniqueFd state_;
  UniqueFd changes_;   // inotify
  UniqueFd launcher_;  // pidfd; none when it has ended before
  LogReader output_{folder_};
};

}  // namespace hvd::launcher
