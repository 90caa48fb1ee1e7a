// The policy for programs whose ranks have not entered hvd.elastic.run: as far as the launcher knows, the ranks cannot
// survive a change, so all of them end and the program starts again with other ranks. Until a process requests its
// place, the ranks are the processes with which the launch began. Class Generations owns this object. No I/O, no clock.
//
// A rank that fails:
//   failed() ──> suspect ──no other cause within --host-timeout──> settle() ──> restart, or the end of the job
//                   └─────a killed rank, a lost host────────────────────────────────┘
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/elastic/elastic_core.h"
#include "launcher/elastic/next_generation.h"
#include "launcher/elastic/program_policy.h"

namespace hvd::launcher {

class RestartProgram : public ProgramPolicy {
 public:
  // A failed rank, whose failure may be a consequence of another rank's failure.
  struct Suspect {
    ProcessFailure failure;
    Time since;
  };
  // The arguments must outlive this object.
  RestartProgram(ElasticCore& core, NextGeneration& next) : core_(core), next_(next) {}

  // Assumes that the processes with which the launch began are the ranks, until a process requests its place.
  void assume_ranks();
  // Call when a process has requested a place: waiting hosts start their processes, and the first generation is formed.
  void drop_assumption(Time now);
  // Returns whether a suspect still waits for a report of the real cause. Schedules the next check.
  bool awaits_cause(Time now);
  bool has_suspect() const { return suspect_.has_value(); }
  std::optional<Suspect> take_suspect() { return std::exchange(suspect_, {}); }

  void failed(const ProcessFailure& failure, Time now) override;
  void settle(const ProcessFailure& failure, Time since, Time now) override;
  void host_lost(const std::string& sentence, const std::string& consequence, Time now) override;
  bool decide(Time now) override;
  std::string when_they_leave(const std::string& whose, Time now) const override;
  std::string when_they_come() const override;
  std::string until_host_ends(int64_t seconds) const override;

 private:
  void restart_after_failure(const std::string& sentence, int exit_code, Time since, Time now);
  void restart(const std::string& why, Time now);
  bool has_new_slots(Time now);
  void change_ranks(Time now);

  ElasticCore& core_;
  NextGeneration& next_;
  std::optional<Suspect> suspect_;
};

}  // namespace hvd::launcher
