// The next generation with the processes that are ready to join it, while the ranks train. Each joining process knows
// its place and prepares, and the ranks are interrupted when all joining processes have requested again. The plan is
// void when ranks or joining processes end or must leave. ElasticCore owns one. No I/O, no clock.
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

  // nullptr: there is no plan.
  const Generation* generation() const { return generation_ ? &*generation_ : nullptr; }
  // Whether all new processes of the plan have asked again: the generation may begin.
  bool is_prepared() const;
  // The new processes of the plan that live and are not ranks yet.
  std::set<int> newcomers() const;
  void set(std::optional<Generation> generation) { generation_ = std::move(generation); }
  void drop() { generation_.reset(); }
  // The answers to new processes that have no place yet, which prepare from now on.
  std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> answer_places(Clock::time_point now);

 private:
  HostTable& hosts_;
  std::optional<Generation> generation_;
};

// The generation of a plan that has new processes, or nothing.
std::optional<Generation> with_newcomers(MembershipPlan plan);

// Returns the processes to which this generation gives no place, or another place than hvd.init has returned. A program
// can change its place within hvd.elastic.run only, so these processes must start again.
std::vector<RankRun*> misplaced(HostTable& hosts, const std::set<int>& processes,
                                const Generation& generation);

}  // namespace hvd::launcher
