// The environment of the original Horovod's workers, besides their ranks: the address of the
// rendezvous server, the controller, and the network interface.
#pragma once

#include <cstdint>

#include "launcher/program/program.h"

namespace hvd::launcher {

// `port`: of the loopback, where their requests are taken. `link`: the agent's, which shows over
// which interface the launcher reaches this host. `rank` is the environment of a rank so far, and
// `own` the agent's; an interface that is named there already stays.
Environment original_worker_environment(uint16_t port, int link, const Environment& rank,
                                        const Environment& own);

}  // namespace hvd::launcher
