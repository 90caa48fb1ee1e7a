// Reads the settings of horovodrun. The command line overrides the config file, which overrides the environment, which
// overrides the defaults. Flags, their types and their help come from the table in base/settings. Reads the config file
// and this process's environment, and changes nothing.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// The format in which the user wants errors, as far as arguments and config file are readable.
struct MessageForm {
  bool is_json = false;
  std::string color = "auto";  // the value of --color
};

// `arguments`: without the program's name. An error is one sentence.
Result<Options> parse_options(std::span<const std::string> arguments, MessageForm* form = nullptr);

}  // namespace hvd::launcher
