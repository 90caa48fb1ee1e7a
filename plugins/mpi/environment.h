// Decides whether this process can use the MPI of this plugin, by the libraries that it has loaded,
// its launcher and the user's settings.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::mpi {

// HOROVOD_MPI_LIBRARY, or empty.
std::string wanted_library();

// Whether the launcher of an MPI says that it has started several processes.
bool launcher_has_several();

// Why ranks of one job might not be one world of this plugin's MPI, as far as can be told. For before
// MPI starts: Open MPI sets its launcher's variables where it had none.
std::string why_apart();

// Not ok, with a sentence, where this plugin's MPI would be the wrong one here. Loads nothing that
// stays.
Status judge_environment();

}  // namespace hvd::mpi
