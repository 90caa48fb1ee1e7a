// The data of an elastic job that outlive a launch, because a program without hvd.elastic.run is launched again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/allocation/host_pool.h"
#include "launcher/elastic/elastic_settings.h"

namespace hvd::launcher {

// The changes of an elastic job's ranks, for --reset-limit.
class ResetHistory {
 public:
  // Call when a generation after the first has begun.
  void count(int64_t generation, const std::string& why, Clock::time_point now);
  // Returns whether the ranks may change again. Forgets resets that are older than the limit's time.
  bool may_reset(const std::optional<ResetLimit>& limit, Clock::time_point now);
  // Returns a text like "; 2 changes are left", or an empty text without a limit.
  std::string left(const std::optional<ResetLimit>& limit) const;
  // Returns the number of resets and the causes of the last ones, as a sentence for the end of the job.
  std::string sentence() const;

 private:
  struct Reset {
    Clock::time_point time;
    int64_t generation = 0;  // the generation that began
    std::string why;
  };
  std::vector<Reset> resets_;
};

struct JobHistory {
  explicit JobHistory(HostPool hosts_of_job) : pool(std::move(hosts_of_job)) {}

  HostPool pool;
  std::optional<int> most;  // the number of ranks that a user has requested
  ResetHistory resets;
  int restarts = 0;  // number of restarts after failures
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point>
      waits_since;         // start of the wait for hosts; unset while the job has ranks
  int32_t generation = 0;  // number of the next launch's first generation
  // The hosts in the order of the last generation's ranks, and that generation's failure, or empty.
  std::vector<std::string> hosts;
  std::string failure;
  int failure_code = 0;
};

}  // namespace hvd::launcher
