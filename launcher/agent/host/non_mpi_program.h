// Detects programs that cannot join an MPI job, by the libraries that they link. Reads the file.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace hvd::launcher {

// Returns true for an executable (ELF, 64 bits, of this machine's byte order) that needs only the
// libraries of C and C++; false for any other format.
bool needs_only_the_c_library(ByteView file);

// Returns whether `path` is such an executable that runs no other program: the program is no shell,
// and no argument could name a program.
bool is_non_mpi_program(const std::string& path, const std::vector<std::string>& command);

}  // namespace hvd::launcher
