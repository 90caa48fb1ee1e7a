// The input of a launch: the settings, the command, and what the launcher found out about its own process. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// A script whose end makes a scheduler or a container end all processes that the script has started, including a
// detached launcher.
struct EndingScript {
  std::string name;  // for example "the script of Slurm"
  int64_t pid = 0;
  int64_t start = 0;  // in clock ticks since the boot
};

struct Options {
  LaunchSettings settings;
  std::vector<std::string> command;  // all words from the first one that is not a flag
  // The launcher runs in a Slurm step with a part of the job's resources. Read at the start, because the job removes
  // the step's variables from this process.
  bool is_in_slurm_step = false;
  std::vector<std::string> shortened = {};  // sentences about abbreviated flags, for --verbose
  // The script that started a detached job, if a scheduler ends the job when this script ends.
  std::optional<EndingScript> script = {};
};

// Returns true for --help, --version and other flags that print an answer and start no job.
bool is_question(const Options& options);
// Returns true for --detach, if a job starts.
bool is_detached(const Options& options);

}  // namespace hvd::launcher
