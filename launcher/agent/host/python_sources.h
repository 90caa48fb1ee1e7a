// Reads the sources of a Python program: its script, module or code, and the modules that it imports from the program's
// own folder and from folders that the caller names. Skips other packages. Reads files, and starts no interpreter.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/command_file.h"

namespace hvd::launcher {

// The result of a search for a word in a program's sources. kUnknown: no source contains the word, but a source is
// missing, is not text, or is a compiled module, or the limit of 200 files or 4 MiB was reached.
enum class Mention { kNone, kSome, kUnknown };

// Returns whether `has_word` returns true for one of the sources. A script is relative to `folder`. Modules are
// searched in the script's folder, or in `folder` if there is no script, and then in `more_folders`.
Mention look_in_sources(const PythonProgram& program, const std::string& folder,
                        const std::function<bool(std::string_view source)>& has_word,
                        std::span<const std::filesystem::path> more_folders);

// Returns the modules of an import statement: a.b and c for "import a.b, c as d", a and a.b for "from a import b".
// Pure.
std::vector<std::string> imports_of(std::string_view statement);

// Returns whether the command is Python with a script or -m MODULE, and no source contains a word about ranks. Returns
// false for other commands, and if the result is kUnknown.
bool has_no_word_of_ranks(const std::vector<std::string>& command, const std::string& folder);

// Returns whether a source contains a word about ranks (rank, world_size, horovod, mpi4py, ...). Pure.
bool mentions_ranks(std::string_view source);

}  // namespace hvd::launcher
