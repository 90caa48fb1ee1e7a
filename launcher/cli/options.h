// Reads the settings of horovodrun. The command line overrides the config file, which overrides the environment, which
// overrides the defaults. Flags, their types and their help come from the table in base/settings. The launcher's main
// calls it. Pure, except for reading the config file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/state/ending_script.h"

namespace hvd::launcher {

struct Options {
  LaunchSettings settings;
  std::vector<std::string> command;  // all words from the first one that is not a flag
  // The launcher runs in a Slurm step with a part of the job's resources. Read at the start, because the job removes
  // the step's variables from this process.
  bool is_in_slurm_step = false;
  std::vector<std::string> shortened = {};  // sentences about abbreviated flags, for --verbose
  // The script with whose end a scheduler ends a detached job.
  std::optional<EndingScript> script = {};
};

// The error format that the user requests, as far as arguments and config file are readable.
struct MessageForm {
  bool is_json = false;
  std::string color = "auto";  // the value of --color
};

// `arguments`: without the program's name. An error is one sentence.
Result<Options> parse_options(std::span<const std::string> arguments, MessageForm* form = nullptr);

// Returns true for --help, --version and other flags that print an answer and start no job.
bool is_question(const Options& options);
// Returns true for --detach, if a job starts.
bool is_detached(const Options& options);

}  // namespace hvd::launcher
