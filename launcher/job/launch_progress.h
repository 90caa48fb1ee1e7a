// One line about hosts on their way, for a terminal. Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct HostProgress {
  std::string host;
  std::string stage;   // that it is in: "connect"
  double seconds = 0;  // since it is
  bool is_ready = false;
};

// "hosts ready 2/4; c: connect 3 s, d: authenticate 1 s", the slowest first, cut at so many columns.
std::string progress_line(std::vector<HostProgress> hosts, size_t columns);

}  // namespace hvd::launcher
