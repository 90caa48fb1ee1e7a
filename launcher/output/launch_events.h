// The events of a job's launches, for its record. The launcher's main makes it.
#pragma once

#include <functional>
#include <string>

namespace hvd::launcher {

class LogQueue;
class MetricsPort;

// The launch's thread calls these functions. Each may be empty.
struct LaunchEvents {
  // Called when all ranks of a launch run.
  std::function<void(int ranks)> on_running;
  // Called when a launch has ended. `cause`: a sentence, or empty after success.
  std::function<void(const std::string& cause)> on_end;
  // The receiver of the output, which outlives the launches; or null.
  LogQueue* output = nullptr;
  // The port of the metrics; null: they are not served.
  MetricsPort* metrics = nullptr;
};

}  // namespace hvd::launcher
