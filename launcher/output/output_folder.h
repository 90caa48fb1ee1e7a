// Takes the directory of --output-filename for one job: locks it against other jobs, and moves the files of an earlier
// run aside. The launcher holds the lock until the job ends.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

class OutputFolder {
 public:
  // Creates the directory if it is missing. Moves each rank.N in it to before-TIME. An error names
  // the job that is writing there. An empty path means no files, and is not an error.
  static Result<OutputFolder> take(const std::string& path);

  // moved(): a message with the place of the earlier run's files. warning(): a message that locks do not work. May be
  // empty.
  const std::string& moved() const { return moved_; }
  const std::string& warning() const { return warning_; }

 private:
  UniqueFd lock_;  // the kernel releases the lock when this process ends
  std::string moved_;
  std::string warning_;
};

// Returns whether `name` is the name of a rank's directory: "rank.0", "rank.07". Pure.
bool is_of_rank(std::string_view name);

}  // namespace hvd::launcher
