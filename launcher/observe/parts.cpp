#include "launcher/observe/parts.h"

namespace hvd::launcher {

// In the order in which they see events.
std::vector<std::shared_ptr<JobPart>> parts_of(PartLaunch& launch) {
  std::vector<std::shared_ptr<JobPart>> parts;
  for (const auto make : {
           awaited_ranks,  // keeps InitWaits, which others read
           silence_watch,
           start_watch,
           status_line,
           hang_watch,
           straggler_watch,
           metrics_file,
           metrics_server,
           time_limit,
           loop_watch,
       }) {
    parts.push_back(make(launch));
  }
  return parts;
}

}  // namespace hvd::launcher
