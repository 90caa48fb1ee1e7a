// Decides whether ranks wait for others that they cannot find, because their programs began with other variables than
// the launcher's (changed_variables.h). HangWatch owns this object. Pure: each call carries its time.
#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "launcher/observe/rules/hang_rule.h"

namespace hvd::launcher {

class LoneRanks {
 public:
  using Time = Clock::time_point;

  // Takes the signs of all running ranks. `hosts` already has the changes of these signs. Returns whether a rank with
  // changed variables waits alone for too long: without a connection to another process, and without work of its main
  // thread. Returns false if the ranks make whole worlds, or if a rank has not loaded PyTorch or has ended.
  bool look(const HangRule::Signs& signs, const HostTable& hosts, Time now);
  // Returns whether changed variables may be the cause of a hang at these places. They are not if ranks wait in an
  // operation of torch.distributed: such ranks have met, for example by file://. Without a stack of such a rank, a rank
  // with changed variables must have been alone at the last look.
  bool may_explain(const HangRule::Places& places, const HostTable& hosts) const;

 private:
  struct Wait {
    Time idle_since, seen;
    uint64_t main_microseconds = 0;
  };

  std::map<int, Wait> waits_;  // by rank
  // At the last look: all ranks had loaded PyTorch; a rank with changed variables was alone.
  bool have_torch_ = false, is_one_alone_ = false;
};

}  // namespace hvd::launcher
