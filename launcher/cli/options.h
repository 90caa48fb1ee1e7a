// The command line of horovodrun, over a config file, over the environment, over the defaults.
// Flags, their types and their help come from the table in base/settings; here lies only how they
// are read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings.h"

namespace hvd::launcher {

struct Options {
  Settings settings;
  std::vector<std::string> command;  // everything from the first word that is no flag, untouched
};

// `arguments` without the program's name. An error is one sentence. `wants_json`: whether it is to be an
// object, as far as arguments and config file can be read.
Result<Options> parse_options(std::span<const std::string> arguments, bool* wants_json = nullptr);

// --help, --version and the like: answered without a job.
bool is_question(const Options& options);

}  // namespace hvd::launcher
