// Takes the directory of --output-filename for one job: locks it against another job, and moves the files of an
// earlier run aside. The launcher's command keeps it through all attempts and generations of the job.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

class OutputFolder {
 public:
  // Makes the directory if it is missing. Moves each rank.N in it to before-TIME. An error names the job that
  // writes there. An empty path, of a job without such files, is no error.
  static Result<OutputFolder> take(const std::string& path);

  // Sentences for the user: where the files of the earlier run are, and that locks do not work there.
  const std::string& moved() const { return moved_; }
  const std::string& warning() const { return warning_; }

 private:
  UniqueFd lock_;  // its lock ends with this process, however it ends
  std::string moved_;
  std::string warning_;
};

// Whether it is the name of a rank's directory: "rank.0", "rank.07". Pure.
bool is_of_rank(std::string_view name);

}  // namespace hvd::launcher
