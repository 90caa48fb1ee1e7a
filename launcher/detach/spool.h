// Writes the output of a detached job to files of bounded size. A disk that is full costs the oldest
// output, then the newest, and never the job. OutputRecorder owns it, and calls it on its thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/state/log_files.h"

namespace hvd::launcher {

class Spool {
 public:
  // Makes the spool of this process, in the user's directory below `parent`. Removes an older one of
  // the same process id.
  static Result<std::unique_ptr<Spool>> make(const std::string& parent, LogLimits limits = {});

  void write(bool is_error, std::string_view lines);
  // Records the exit code of the job; no other call may follow.
  void end(int exit_code);

 private:
  Spool(UniqueFd folder, UniqueFd state, LogLimits limits)
      : folder_(std::move(folder)), state_(std::move(state)), files_(folder_, limits) {}

  const UniqueFd folder_;
  const UniqueFd state_;  // a file that is locked while this process lives
  LogFiles files_;
};

}  // namespace hvd::launcher
