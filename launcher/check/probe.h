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
  std::string why;  // not: the last line that the child wrote to standard error, or how it ended
  std::string output{};  // all of that, or the last of it
  bool is_late = false;  // it was ended at the deadline
};

// It ends with this process, with what it has started in its process group.
class Probe {
 public:
  // Starts the child at once. `body` may replace it by a program; what it returns is why it does
  // not work, empty when it does.
  explicit Probe(const std::function<std::string()>& body);
  Probe(Probe&& other) noexcept;
  ~Probe();

  ProbeOutcome wait(Deadline deadline);

 private:
  int pid_ = -1;
  int error_fd_ = -1;
  std::string start_error_;
};

// For a body: becomes the program (found on PATH), with these variables on top; returns why not.
std::string become(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace hvd::launcher
