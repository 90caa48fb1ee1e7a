// Computes the variables by which workers of the original Horovod find their job (--insecure-compat): address of the
// rendezvous server, the controller, and the network interface. Reads this host's interfaces.
#pragma once

#include <cstdint>

#include "launcher/protocol/program.h"

namespace hvd::launcher {

// Returns the variables for one rank. `port`: the loopback port that accepts the requests of workers. `link`: the
// agent's link, whose interface leads to the launcher. `rank`: the environment of a rank without these variables.
// `own`: the environment of the agent. An interface in `rank` is kept.
Environment original_worker_environment(uint16_t port, int link, const Environment& rank,
                                        const Environment& own);

}  // namespace hvd::launcher
