// Detects foreign launchers, and reads this process's rank and size from their environment
// variables. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// The plugin for torchrun and for other launchers of torch.distributed.
constexpr std::string_view kTorchBootstrap = "torch";

struct ForeignPlace {
  std::string launcher;   // "Open MPI's mpirun (OMPI_COMM_WORLD_RANK)"
  int64_t rank = 0;       // -1: no variable has it
  int64_t size = 1;       // -1: above 1, but no variable has it
  std::string bootstrap;  // name of the plugin that finds the other ranks
};

// Returns whether torchrun, or accelerate through torchrun, started this process or its parent.
bool is_worker_of_torchrun();

// Returns whether a user started this program in an interactive shell of a step: the shell of `srun --pty`, or a shell
// of tmux, screen or script below that shell. The step's other tasks do not run the program then. Returns false if a
// launcher in the shell started the program.
bool is_in_shell_of_step();

// Returns the place that a foreign launcher gave this process, with a size. Returns nullopt without such a launcher, or
// if it started only this process.
std::optional<ForeignPlace> foreign_place();

// Like foreign_place(), but also returns a place without a size if the variables only show that the job has several
// processes. For PMIx, a rank above 0 shows this; for hydra with -pmi-port, a rank above 0 or the number of ranks on
// this host.
std::optional<ForeignPlace> place_among_several();

// Returns an error with both places and a remedy if `identity` contradicts the foreign launcher.
// `identity` comes from variables or from the rendezvous server; `settings` show whether one of
// this project's agents has set it. Horovod's own rendezvous server is trusted: another launcher
// may have started Ray, for example, which runs such a server.
Status check_launchers(const WorkerSettings& settings, const Identity& identity);

}  // namespace hvd::runtime
