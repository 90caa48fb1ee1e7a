// Starts helper programs. Other files start ranks, and children that do not call exec. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hvd {

// Means /dev/null in place of a descriptor.
inline constexpr int kDevNull = -1;

enum class SpawnGroup {
  kInherited,
  kOwn,
  kOwnSession,  // in its own session and group: a terminal's Ctrl-C does not reach the program
};

struct SpawnOptions {
  // The first argument is the program: a path, or a name to look up on PATH.
  std::vector<std::string> arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // the complete environment
  // Descriptors above 2 (see pipe.h). Empty: the program inherits this process's stream.
  std::optional<int> input = {}, output = {}, errors = {};
  SpawnGroup group = SpawnGroup::kInherited;
  std::vector<int> blocked_signals = {};  // all other signals are unblocked
  bool has_default_actions = false;       // false: inherits ignored signals from this process
};

// Returns when the program runs. The caller must reap the process. kNotFound: the program does not exist.
Result<pid_t> spawn_program(const SpawnOptions& options);

// Waits for the end of a child, and reaps it. Returns its exit code, or 128 plus the number of the
// signal that ended it, as a shell does.
int wait_for_exit(pid_t pid);

// Runs a program without input. Returns at most 1 MiB of its standard output, and of its standard error
// unless `errors` is set. kDeadlineExceeded: the program was late. Finally, its process group gets SIGKILL.
Result<std::string> output_of(SpawnOptions options, Deadline deadline);

}  // namespace hvd
