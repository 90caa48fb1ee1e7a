// One launch, from a plan to its exit code: agents on all hosts, the rendezvous server in this
// process, the ranks, their output, their end. One thread, one loop.
#pragma once

#include "launcher/options.h"
#include "launcher/slot_plan.h"

namespace hvd::launcher {

class Lobby;

// Returns horovodrun's exit code, after the sentence that explains it. `lobby`: where the hosts have
// joined, instead of being reached.
int run_job(const Options& options, const SlotPlan& plan, Lobby* lobby = nullptr);

}  // namespace hvd::launcher
