// The events of a job's launches, for the job's record.
#pragma once

#include <functional>
#include <string>

namespace hvd::launcher {

class LogQueue;
class MetricsPort;

// Callbacks in the launch's thread. Each callback may be empty.
struct LaunchEvents {
  // Called when all ranks of a launch run.
  std::function<void(int ranks)> on_running;
  // Called when a launch has ended, except a restart that ends before its ranks start. `cause`: a sentence, or empty
  // after success.
  std::function<void(const std::string& cause)> on_end;
  // Receives the output for the job's log, and outlives the launches; null: no log.
  LogQueue* output = nullptr;
  // The port of the metrics; null: no metrics are served.
  MetricsPort* metrics = nullptr;
};

}  // namespace hvd::launcher
