// Reports this process's rank and the size of its world to the agent that started it, if one did.
// hvd_init calls it.
#pragma once

#include "rendezvous/wire/world_report.h"

namespace hvd::runtime {

// Finds the agent among this process's ancestors, not by the environment, which a program may have changed.
// Waits for its answer, for a bounded time. Without an agent, or if none answers, does nothing and logs nothing.
void notify_agent(const rendezvous::WorldReport& report);

}  // namespace hvd::runtime
