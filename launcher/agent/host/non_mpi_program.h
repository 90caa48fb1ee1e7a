// Detects programs that certainly join no MPI job: by the libraries and functions that an executable needs, or
// by the packages and sources of a Python program. Reads files, and starts no program. An error in doubt
// would let each rank of an MPI program run alone, so everything else may use MPI: shells, scripts, programs
// that start another one, and what cannot be read.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "launcher/program/command_file.h"

namespace hvd::launcher {

// Returns whether this command certainly uses no MPI. `environment` is the ranks'.
bool is_non_mpi_program(const CommandFile& file, const std::string& working_directory,
                        const Environment& environment);

// Returns true for an executable (ELF, 64 bits, of this machine's byte order) that is linked dynamically to
// the libraries of C and C++ alone, and imports no function that starts a program or opens a library.
bool runs_alone(ByteView file);

// Whether a word of the text begins as names of MPI do: mpi4py, MPI_Init, libmpi.so.40, openmpi, OMPI_COMM_WORLD_RANK,
// PMIX_RANK; not compile.
// Pure.
bool names_mpi(std::string_view text);

}  // namespace hvd::launcher
