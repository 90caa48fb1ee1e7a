// The policy for programs that use hvd.elastic.run: after a loss, or when hosts join or leave, the ranks request their
// next places and keep their processes. Before the first generation, this policy applies to all programs. Class
// Generations owns this object. No I/O, no clock.
#pragma once

#include <string>

#include "launcher/elastic/elastic_core.h"
#include "launcher/elastic/next_generation.h"
#include "launcher/elastic/program_policy.h"

namespace hvd::launcher {

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
