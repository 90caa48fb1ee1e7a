#include "launcher/output/launch_progress.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {

std::string progress_line(std::vector<HostProgress> hosts, size_t columns) {
  const size_t all = hosts.size();
  std::erase_if(hosts, [](const HostProgress& host) { return host.is_ready; });
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const auto& one, const auto& other) { return one.seconds > other.seconds; });
  std::string line = cat("hosts ready ", all - hosts.size(), "/", all);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string part = cat(i == 0 ? "; " : ", ", hosts[i].host, ": ", hosts[i].stage, " ",
                                 static_cast<int64_t>(hosts[i].seconds), " s");
    if (line.size() + part.size() + 5 > columns) return line + (i == 0 ? "" : ", ...");
    line += part;
  }
  return line;
}

}  // namespace hvd::launcher
