// The changes of an elastic job's ranks, for --reset-limit. JobHistory owns one, through all launches of the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/elastic_settings.h"

namespace hvd::launcher {

class ResetHistory {
 public:
  // A generation after the first has begun.
  void count(int64_t generation, const std::string& why, Clock::time_point now);
  // Whether the ranks may change again. Forgets what is older than the limit's time.
  bool may_reset(const std::optional<ResetLimit>& limit, Clock::time_point now);
  // "; 2 changes are left", or nothing without a limit.
  std::string left(const std::optional<ResetLimit>& limit) const;
  // How many resets there were, and the causes of the last ones: why the job ends.
  std::string sentence() const;

 private:
  struct Reset {
    Clock::time_point time;
    int64_t generation = 0;  // the one that began
    std::string why;
  };
  std::vector<Reset> resets_;
};

}  // namespace hvd::launcher
