// The events of a job's launches, for its record. The launcher's main makes it.
#pragma once

#include <functional>
#include <string>

namespace hvd::launcher {

class LogQueue;
class MetricsPort;

// Each function may be empty. The launch's thread calls them.
struct LaunchEvents {
  // All ranks of a launch run.
  std::function<void(int ranks)> on_running;
  // A launch has ended; `cause`: a sentence, or empty after success.
  std::function<void(const std::string& cause)> on_end;
  // Receives the output, and outlives the launches; or null.
  LogQueue* output = nullptr;
  // The address of the metrics; null: not served.
  MetricsPort* metrics = nullptr;
};

}  // namespace hvd::launcher
