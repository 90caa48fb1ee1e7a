// The user's choice of variables for the ranks: -x, --env-file, --no-env. Pure, except for the file that is read and
// the seed that is drawn.
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
  std::vector<std::string> names;  // names after -x, and patterns that end in '*'
  Environment values;  // from --env-file and -x NAME=VALUE; the last value of a name wins
  // Values of names that come again without a value: for those that the launcher's environment lacks.
  Environment earlier_values;
};

// An error names the flag, or file and line.
Result<EnvironmentChoice> read_environment_choice(const LaunchSettings& settings);

// Lines NAME=VALUE, also behind "export", values also within quotes; NAME alone is -x NAME;
// comments and blank lines.
Status parse_env_file(std::string_view text, std::string_view path, EnvironmentChoice& choice);

// The environment that a host gets, from the launcher's environment and the choice. A name of the choice also passes a
// variable that is not for other hosts; a pattern does not. `flags`, which other flags have set, win over inherited
// values; values of the choice win over both. Without a PYTHONHASHSEED each call adds the same one.
Environment chosen_environment(const Environment& inherited, const Environment& flags,
                               const EnvironmentChoice& choice, bool is_local);

// The names given that have no effect, since the launcher sets these variables for each rank. `torch`: also
// those of torchrun.
std::vector<std::string> ineffective_names(const EnvironmentChoice& choice, bool torch);

// The names without a value in the choice and the environment.
std::vector<std::string> unset_names(const Environment& inherited, const EnvironmentChoice& choice);

}  // namespace hvd::launcher
