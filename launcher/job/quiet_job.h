// A job in a child process whose output this process reads: --check-build -H and horovodrun doctor learn about hosts by
// such jobs. For a process with one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

struct QuietLine {
  std::optional<int> rank;  // absent: the launcher's own message
  std::string text;
};

struct QuietAnswer {
  std::vector<QuietLine> lines{};
  std::vector<int> failed_hosts{};  // indices of hosts that were not prepared, or lost
};

QuietAnswer read_quiet_output(std::string_view text);

class QuietJob {
 public:
  // Starts the job on these hosts, with a rank in each slot. Its settings must have log_format json. The job ends with
  // this process.
  QuietJob(const Options& job, const std::vector<Host>& hosts);
  QuietJob(QuietJob&& other) noexcept;
  // Waits for the end of the job, and returns its output: JSON lines.
  Result<std::string> output();

 private:
  pid_t child_ = -1;
  UniqueFd reading_;
  Status why_not_;
};

}  // namespace hvd::launcher
