// Detects foreign launchers, and reads this process's rank and size from their environment variables.
// It is an error when two launchers contradict each other. The bootstrap calls it. Any thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/settings.h"
#include "runtime/bootstrap/identity.h"

namespace hvd::runtime {

struct ForeignPlace {
  std::string launcher;  // "Open MPI's mpirun (OMPI_COMM_WORLD_RANK)"
  int64_t rank = 0;
  int64_t size = 1;       // -1: above 1, but the variables do not tell it
  std::string bootstrap;  // the plugin that finds the other ranks
};

// Whether this is a program that somebody typed into the shell of srun --pty, which has the terminal of
// the step's first task, or into one on a terminal of tmux, screen or script below it: what it starts,
// no other task has started. Not where a launcher in that shell has started it.
bool is_in_shell_of_step();

// Nothing where there is none, or where it has started one process: it may have started our launcher.
// Every place has a size.
std::optional<ForeignPlace> foreign_place();

// The same, or a place without a size, of a launcher whose variables tell only that there are several
// processes: PMIx by a rank above 0, hydra with -pmi-port by that or by the number of ranks on this host.
std::optional<ForeignPlace> place_among_several();

// Not ok, with both places and what to do, where `identity`, of variables or of the rendezvous, is not
// that of the other launcher; `settings` says whether an agent of ours has given it. The original's
// rendezvous is believed: Ray, say, which makes one, may have been started by another launcher.
Status check_launchers(const Settings& settings, const Identity& identity);

}  // namespace hvd::runtime
