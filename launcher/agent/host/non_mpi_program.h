// Detects programs that cannot join an MPI job, by the libraries that they are linked with. Reads the
// file.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace hvd::launcher {

// An executable (ELF, 64 bits, of this machine's byte order) that needs no library but those of C
// and C++; false for everything that is not understood.
bool needs_only_the_c_library(ByteView file);

// `path`, run with these arguments, is such an executable, and runs no other: it has no argument
// that could name one, and is no shell.
bool is_non_mpi_program(const std::string& path, const std::vector<std::string>& command);

}  // namespace hvd::launcher
