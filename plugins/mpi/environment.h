// Decides from the loaded libraries, the launcher and the user's settings whether this process can use
// the plugin's MPI.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::mpi {

// Returns the value of HOROVOD_MPI_LIBRARY, or empty.
std::string wanted_library();

// Returns whether an MPI launcher has started several processes, according to its variables.
bool launcher_has_several();

// Returns the reason, if known, why the ranks of one job might not share one MPI_COMM_WORLD. Call this
// before MPI starts: without a launcher, Open MPI sets the launcher's variables itself.
std::string why_apart();

// Returns an error if this process needs another MPI than the plugin's. Keeps no library loaded.
Status judge_environment();

}  // namespace hvd::mpi
