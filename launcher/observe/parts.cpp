#include "launcher/observe/parts.h"

namespace hvd::launcher {

// Returns all parts. Each event goes to the parts in this order.
std::vector<std::shared_ptr<JobPart>> parts_of(PartLaunch& launch) {
  std::vector<std::shared_ptr<JobPart>> parts;
  for (const auto make : {
           awaited_ranks,  // fills InitWaits, which later parts read
           silence_watch,
           start_watch,
           status_line,
           hang_watch,
           straggler_watch,
           metrics_file,
           metrics_server,
           time_limit,
           script_watch,
           loop_watch,
           input_relay,
       }) {
    parts.push_back(make(launch));
  }
  return parts;
}

}  // namespace hvd::launcher
