// Formats the progress of the hosts during the start as one line for a terminal. HostStartup calls it.
// Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct HostProgress {
  std::string host;
  std::string stage;   // the current stage: "connect"
  double seconds = 0;  // since the stage began
  bool is_ready = false;
};

// "hosts ready 2/4; c: connect 3 s, d: authenticate 1 s": the slowest first, at most `columns` wide.
std::string progress_line(std::vector<HostProgress> hosts, size_t columns);

}  // namespace hvd::launcher
