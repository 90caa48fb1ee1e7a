// The next generation of an elastic job, computed from the participating processes and the usable hosts. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "launcher/allocation/host_pool.h"
#include "launcher/elastic/membership.h"
#include "launcher/hosts/host_table.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

struct GenerationRules {
  int least = 1;
  std::optional<int> most;
  int32_t number = 0;  // the number of the next generation
};

// Plans the next generation. `current`: the current generation, or none. `takes`: returns whether the next generation
// may include a process.
MembershipPlan plan_generation(const HostTable& hosts, const std::optional<Generation>& current,
                               const HostPool& pool, const GenerationRules& rules,
                               const std::function<bool(const RankRun& process)>& takes);

rendezvous::Generation record_of(const Generation& generation);
std::map<int, rendezvous::PlaceAnswer> answers_by_process(const Generation& generation);

}  // namespace hvd::launcher
