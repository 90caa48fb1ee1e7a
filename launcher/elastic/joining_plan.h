// The planned next generation, with processes that are ready to join it, while the ranks train. Each joining process
// knows its place and prepares. The ranks are interrupted when all joining processes have requested again. The plan is
// void when ranks or joining processes end or must leave. ElasticCore owns this object. No I/O, no clock.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/membership.h"
#include "launcher/hosts/host_table.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

class JoiningPlan {
 public:
  explicit JoiningPlan(HostTable& hosts) : hosts_(hosts) {}

  // Returns the planned generation; nullptr: no plan.
  const Generation* generation() const { return generation_ ? &*generation_ : nullptr; }
  // Returns whether all new processes of the plan have requested again, so that the generation may begin.
  bool is_prepared() const;
  // Returns the new processes of the plan that are alive but not ranks yet.
  std::set<int> newcomers() const;
  void set(std::optional<Generation> generation) { generation_ = std::move(generation); }
  void drop() { generation_.reset(); }
  // Returns the provisional places for new processes without a place, and moves these processes to kPreparing.
  std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> answer_places(Clock::time_point now);

 private:
  HostTable& hosts_;
  std::optional<Generation> generation_;
};

// Returns the generation of the plan if it has new processes; else nothing.
std::optional<Generation> with_newcomers(MembershipPlan plan);

// Returns the processes to which this generation gives no place, or another place than the place that hvd.init has
// returned. A program can change its place only within hvd.elastic.run, so these processes must start again.
std::vector<RankRun*> misplaced(HostTable& hosts, const std::set<int>& processes,
                                const Generation& generation);

}  // namespace hvd::launcher
