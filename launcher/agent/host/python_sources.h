// Reads the sources of a Python program: its script, module or code, and the modules beside it that it
// imports. Installed packages are not read. Reads files, and starts no interpreter.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/program/command_file.h"

namespace hvd::launcher {

// kUnknown: a source was not found, is no text, or there are more than 200 files or 4 MiB.
enum class Mention { kNone, kSome, kUnknown };

// Whether `has_word` is true for one of the sources. A script is relative to `folder`, and modules are
// searched there.
Mention look_in_sources(const PythonProgram& program, const std::string& folder,
                        const std::function<bool(std::string_view source)>& has_word);

// Whether the command is Python with a script or -m MODULE, and no source has a word of ranks. False for
// other commands, and where a source is unknown.
bool has_no_word_of_ranks(const std::vector<std::string>& command, const std::string& folder);

// Whether the text of a source has such a word (rank, world_size, horovod, mpi4py, ...). Pure.
bool mentions_ranks(std::string_view source);

}  // namespace hvd::launcher
