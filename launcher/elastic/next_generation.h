// Forms the next generation from the processes that request places, and assigns the places. The job pauses while too
// few processes are available. Class Generations owns this object. No I/O, no clock.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "launcher/elastic/deadlines.h"
#include "launcher/elastic/elastic_core.h"
#include "launcher/elastic/membership.h"

namespace hvd::launcher {

// The reason of the job's end when all its ranks are lost.
constexpr char kNoState[] = "no remaining rank has the training state";

class NextGeneration {
 public:
  using Time = Clock::time_point;
  explicit NextGeneration(ElasticCore& core) : core_(core) {}

  // Begins the next generation if all awaited processes have requested their places. Returns whether it has begun.
  bool form(Time now);
  // Returns the next generation if these processes join the ranks that stay.
  MembershipPlan plan_joining(const std::set<int>& newcomers) const;
  // Ends each of these processes that cannot take its place in this generation. Returns whether it has ended any.
  bool start_misplaced_again(const std::set<int>& processes, const Generation& generation);

 private:
  GenerationRules rules() const;
  bool is_asked() const;
  MembershipPlan plan() const;
  MembershipPlan plan_in_place();
  void pause(int found, Time now);
  void begin(Generation generation, Time now);
  std::string why_it_resets() const;

  ElasticCore& core_;
  std::optional<Time> paused_since_;
  Reminder pause_;
};

}  // namespace hvd::launcher
