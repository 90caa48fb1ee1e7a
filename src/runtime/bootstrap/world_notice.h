// Reports this process's rank and the size of its world to the agent that started the process, if any.
// hvd_init calls notify_agent().
#pragma once

#include "rendezvous/wire/world_report.h"

namespace hvd::runtime {

// Finds the agent among this process's ancestors, not in the environment, which a program may have changed.
// Waits a limited time for a reply. Without an agent or a reply, does nothing and logs nothing.
void notify_agent(const rendezvous::WorldReport& report);

}  // namespace hvd::runtime
