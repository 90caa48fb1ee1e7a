// The two policies for changes of a program's ranks. Class Generations owns both. No I/O, no clock.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/elastic/elastic_core.h"
#include "launcher/elastic/next_generation.h"

namespace hvd::launcher {

// The policy for programs whose ranks have not entered hvd.elastic.run. As far as the launcher knows, such ranks cannot
// survive a change: all of them end, and the program starts again with other ranks. Until a process requests its place,
// the ranks are the processes with which the launch began.
//
// A rank that fails:
//   failed() ──> suspect ──no other cause within --host-timeout──> settle() ──> restart, or the end of the job
//                   └─────a killed rank, a lost host────────────────────────────────┘
class RestartProgram : public ProgramPolicy {
 public:
  // A failed rank. Its failure may be a consequence of another rank's failure.
  struct Suspect {
    ProcessFailure failure;
    Time since;
  };
  // The arguments must outlive this object.
  RestartProgram(ElasticCore& core, NextGeneration& next) : core_(core), next_(next) {}

  // Treats the processes with which the launch began as the ranks, until a process requests its place.
  void assume_ranks();
  // Call when a process has requested a place. Waiting hosts then start their processes, and the first generation can
  // form.
  void drop_assumption(Time now);
  // Returns whether a suspect still waits for a report of the real cause. If so, schedules the next check.
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

// The policy for programs that use hvd.elastic.run: after a loss, or when hosts join or leave, the ranks request their
// next places and keep their processes. Before the first generation, this policy applies to all programs.
class ElasticRun : public ProgramPolicy {
 public:
  // The arguments must outlive this object.
  ElasticRun(ElasticCore& core, NextGeneration& next) : core_(core), next_(next) {}

  void failed(const ProcessFailure& failure, Time now) override;
  void settle(const ProcessFailure& failure, Time since, Time now) override;
  void host_lost(const std::string& sentence, const std::string& consequence, Time now) override;
  bool decide(Time now) override;
  std::string when_they_leave(const std::string& whose, Time now) const override;
  std::string when_they_come() const override;
  std::string until_host_ends(int64_t seconds) const override;

 private:
  void announce_loss(const std::string& sentence, Time now);
  void check_unprepared(Time now);
  void check_unaware(Time now);
  void plan_newcomers(Time now);
  void renew_plan();
  void announce_changes(Time now);

  ElasticCore& core_;
  NextGeneration& next_;
};

}  // namespace hvd::launcher
