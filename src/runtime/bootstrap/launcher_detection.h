// Detects foreign launchers, and reads this process's rank and size from their environment variables.
// It is an error when two launchers contradict each other. The bootstrap calls it. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// The plugin of torchrun, and of other launchers for torch.distributed.
constexpr std::string_view kTorchBootstrap = "torch";

struct ForeignPlace {
  std::string launcher;   // "Open MPI's mpirun (OMPI_COMM_WORLD_RANK)"
  int64_t rank = 0;       // -1: the variables do not tell it
  int64_t size = 1;       // -1: above 1, but the variables do not tell it
  std::string bootstrap;  // the plugin that finds the other ranks
};

// Whether torchrun, or accelerate by it, started this process or its parent.
bool is_worker_of_torchrun();

// Whether a user has started this program in the interactive shell of srun --pty, on the terminal of
// the step's first task, or in a shell of tmux, screen or script below it. The other tasks of the step
// then have not started it. False when a launcher in that shell has started it.
bool is_in_shell_of_step();

// Returns the place that a foreign launcher gave this process. Returns nullopt without such a
// launcher, and when it started one process, which may be our launcher. The place has a size.
std::optional<ForeignPlace> foreign_place();

// Like foreign_place, and also returns a place without a size when the variables show only that there
// are several processes: PMIx by a rank above 0, hydra with -pmi-port by that or by the number of
// ranks on this host.
std::optional<ForeignPlace> place_among_several();

// Returns an error with both places and a remedy when `identity` contradicts the foreign launcher.
// `identity` comes from variables or from the rendezvous server; `settings` show whether one of our
// agents has set it. Horovod's own rendezvous server is trusted: another launcher may have started
// Ray, for example, which runs such a server.
Status check_launchers(const WorkerSettings& settings, const Identity& identity);

}  // namespace hvd::runtime
