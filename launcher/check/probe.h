// Runs a test that may crash or hang in a child process with a time limit. For a process with one
// thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

struct ProbeOutcome {
  bool works = false;
  // Why the test failed: the child's last line on standard error, or how the child ended.
  std::string why;
  std::string output{};  // all of standard error, or its last part
  bool is_late = false;  // the child was killed at the deadline
};

// A test in a child process. The destructor kills the child's process group.
class Probe {
 public:
  // Starts the child at once. `body` runs in the child, and may replace the child by a program. `body` returns why the
  // part does not work, or an empty string if the part works.
  explicit Probe(const std::function<std::string()>& body);
  Probe(Probe&& other) noexcept;
  ~Probe();

  ProbeOutcome wait(Deadline deadline);

 private:
  int pid_ = -1;
  int error_fd_ = -1;
  std::string start_error_;
};

// Executes the program (found on PATH) with these additional variables; returns only an error. For a body of Probe.
std::string become(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace hvd::launcher
