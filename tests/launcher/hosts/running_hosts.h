// Hosts for tests, with all ranks running.
#pragma once

#include <utility>

#include "launcher/hosts/host_table.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class RunningHosts : public HostTable {
 public:
  // The default plan has two ranks on host a and two on host b.
  explicit RunningHosts(SlotPlan plan = *plan_slots({{"a", "", 2}, {"b", "", 2}}, {}))
      : HostTable(std::move(plan)) {
    for (HostRun& host : hosts()) {
      host.to(HostState::kConnecting, HostCause::kReach);
      host.to(HostState::kPreparing, HostCause::kConnected);
      host.to(HostState::kHeld, HostCause::kPrepared);
      host.to(HostState::kStarting, HostCause::kOrder);
      host.to(HostState::kRunning, HostCause::kStarted);
    }
    for (RankRun& rank : ranks()) {
      rank.to(RankState::kStarting, RankCause::kOrder);
      rank.to(RankState::kRunning, RankCause::kStarted);
    }
  }
};

}  // namespace hvd::launcher
