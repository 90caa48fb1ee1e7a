// The command line of horovodrun. Flags, their types and their help come from the table in
// base/settings; here lies only how they are written. Reads the environment once, no file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings.h"

namespace hvd::launcher {

struct Options {
  Settings settings;                 // argument over environment over default
  std::vector<std::string> command;  // everything from the first word that is no flag, untouched
  bool help = false;
};

// `arguments` without the program's name. An error is one sentence.
Result<Options> parse_options(std::span<const std::string> arguments);

std::string help_text();

}  // namespace hvd::launcher
