// One launch, from a plan to its exit code: agents on all hosts, the rendezvous server in this
// process, the ranks, their output, their end. One thread, one loop.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class JoinQueue;

// How a launch ended, after the sentence that explains it.
struct JobEnd {
  int exit_code = 0;  // of horovodrun
  bool has_started = false;
  bool may_be_tried_again = false;  // a rank or a host failed: neither the user nor time ended it
  std::vector<int> failed_hosts{};  // that could not be readied, or were lost
};

// Once, before the first launch.
void prepare_process(const Options& options);
// `generation`: how many launches of this job were before. `join_queue`: where the hosts have joined,
// instead of being reached.
JobEnd run_job(const Options& options, const SlotPlan& plan, uint32_t generation,
               JoinQueue* join_queue = nullptr);

}  // namespace hvd::launcher
