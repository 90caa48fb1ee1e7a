// The user's limits for the generations of an elastic job. Flags set them, and all parts of
// Generations decide by them.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"
#include "launcher/elastic/discovery/host_source.h"
#include "launcher/elastic/elastic_settings.h"

namespace hvd::launcher {

struct GenerationLimits {
  int least = 1;                     // ranks; below, the job pauses
  std::optional<int> most;           // ranks
  double pause_seconds = 600;        // longest pause
  double return_seconds = 30;        // a rank has to ask for its next place after the first one did
  double init_seconds = 600;         // the same for the first place of the first ranks
  std::optional<ResetLimit> resets;  // generations after the first that may begin
  HostSource hosts = HostSource::kNamed;
  bool restarts_ranks = false;  // a failed rank is started again on its host
  // A program whose ranks do not enter hvd.elastic.run is started again when the ranks change.
  bool restarts_programs = false;
  std::optional<int> most_restarts;  // restarts after failures, if a user has limited them
  double cause_seconds = 3.5;  // a host that is lost this long after a rank's exit may be its cause

  // discovered() may be called again.
  bool finds_hosts() const { return hosts != HostSource::kNamed; }
  bool hosts_join() const { return hosts == HostSource::kJoining; }
};

inline Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace hvd::launcher
