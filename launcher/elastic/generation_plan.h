// The next generation of an elastic job, from the processes that take part and the hosts that may be used. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "launcher/elastic/discovery/host_pool.h"
#include "launcher/elastic/membership.h"
#include "launcher/elastic/process_table.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

struct GenerationRules {
  int least = 1;
  std::optional<int> most;
  int32_t number = 0;  // the next generation has this one
};

// `takes`: whether the next generation may have this process.
MembershipPlan plan_generation(const ProcessTable& table, const HostPool& pool,
                               const GenerationRules& rules,
                               const std::function<bool(int process)>& takes);

rendezvous::Generation record_of(const Generation& generation);
std::map<int, rendezvous::PlaceAnswer> answers_by_process(const Generation& generation);

}  // namespace hvd::launcher
