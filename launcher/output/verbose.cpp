#include "launcher/output/verbose.h"

#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::launcher {

void explain(std::string_view text) {
  static const Clock::time_point began = Clock::now();
  const std::chrono::duration<double> seconds = Clock::now() - began;
  char time[32];
  std::snprintf(time, sizeof time, "%.2f s: ", seconds.count());
  log::info(cat(time, text));
}

}  // namespace hvd::launcher
