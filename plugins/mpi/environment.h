// Decides whether this process can use the plugin's MPI, by the loaded libraries, the launcher and
// the user's settings.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::mpi {

// HOROVOD_MPI_LIBRARY, or empty.
std::string wanted_library();

// Returns whether an MPI launcher has started several processes, according to its variables.
bool launcher_has_several();

// The reason why ranks of one job might not be one world of this plugin's MPI, if known. Call it
// before MPI starts: Open MPI sets its launcher's variables if it had none.
std::string why_apart();

// Returns an error if this plugin's MPI would be the wrong one here. Keeps no library loaded.
Status judge_environment();

}  // namespace hvd::mpi
