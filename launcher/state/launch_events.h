// The events of a job's launches, for its record. The launcher's main makes it.
#pragma once

#include <functional>
#include <string>

namespace hvd::launcher {

class LogQueue;
class MetricsPort;

// Each function may be empty. All are called on the launch's thread.
struct LaunchEvents {
  // All ranks of a launch run.
  std::function<void(int ranks)> on_running;
  // A launch has ended; `cause`: a sentence, or empty after success.
  std::function<void(const std::string& cause)> on_end;
  // Takes the output, and outlives the launches; or null.
  LogQueue* output = nullptr;
  // Where the metrics are served; null: nowhere.
  MetricsPort* metrics = nullptr;
};

}  // namespace hvd::launcher
