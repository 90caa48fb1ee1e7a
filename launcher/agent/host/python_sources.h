// Reads the sources of a Python program to find whether it may use its rank. Reads files; a program that it
// does not find, or not whole, may.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// Whether the command is Python with a script or -m MODULE, and neither its text nor that of the modules
// beside it that it imports has a word of ranks (rank, world_size, horovod, mpi4py, ...). False for other
// commands, for modules that are not in the folder, and beyond 200 files or 4 MiB. Installed packages are
// not read.
bool has_no_word_of_ranks(const std::vector<std::string>& command, const std::string& folder);

// Whether the text of a source has such a word. Pure.
bool mentions_ranks(std::string_view source);

}  // namespace hvd::launcher
