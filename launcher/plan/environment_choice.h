// The user's choice of variables for the ranks: -x, --env-file, --no-env. Pure, except for reading
// a file and drawing a seed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

struct EnvironmentChoice {
  bool inherits_nothing = false;   // --no-env
  std::vector<std::string> names;  // names after -x, and patterns with a final '*'
  Environment values;  // values of --env-file and -x NAME=VALUE; the last value of a name wins
  // Values of names that a later flag or line repeats without a value. Used if the launcher's environment lacks
  // them.
  Environment earlier_values;
};

// An error names the flag, or the file and line.
Result<EnvironmentChoice> read_environment_choice(const LaunchSettings& settings);

// Parses lines NAME=VALUE, also after "export", and with quoted values; NAME alone means -x NAME.
// Allows comments and blank lines.
Status parse_env_file(std::string_view text, std::string_view path, EnvironmentChoice& choice);

// Returns the environment for a host, made from the launcher's environment and the choice. A name in the choice passes
// even a variable that is not meant for other hosts; a pattern does not. Values of other flags (`flags`) override
// inherited values; values of the choice override both. Without a PYTHONHASHSEED, adds a seed. It is the same in every
// call.
Environment chosen_environment(const Environment& inherited, const Environment& flags,
                               const EnvironmentChoice& choice, bool is_local);

// Returns the names in the choice that have no effect, since the launcher itself sets these variables for each rank.
// `torch`: includes torchrun's variables.
std::vector<std::string> ineffective_names(const EnvironmentChoice& choice, bool torch);

// Returns the names that have no value in the choice or the environment.
std::vector<std::string> unset_names(const Environment& inherited, const EnvironmentChoice& choice);

}  // namespace hvd::launcher
