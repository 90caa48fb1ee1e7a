// Reports this process's rank and the size of its world to the agent that started it, if one did.
// hvd_init calls it.
#pragma once

#include "rendezvous/wire/world_report.h"

namespace hvd::runtime {

// Finds the agent among the processes above this one, whatever has become of the environment, and
// waits until it has heard, but never long. Says nothing where there is no agent, or none that can
// be reached from here.
void tell_agent(const rendezvous::WorldReport& report);

}  // namespace hvd::runtime
