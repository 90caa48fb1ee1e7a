// Starts another program. A child that goes on in this program's code after a fork, and a rank, are started where
// they are used. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hvd {

// In place of a descriptor.
inline constexpr int kDevNull = -1;

enum class SpawnGroup {
  kInherited,
  kOwn,
  kOwnSession,  // and group: a terminal's Ctrl-C does not reach the program
};

struct SpawnOptions {
  // The first is the program: a path, or a name to look up on PATH.
  std::vector<std::string> arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // all of it
  // Descriptors above 2 (see pipe.h). Nothing: the program has that stream of this process.
  std::optional<int> input = {}, output = {}, errors = {};
  SpawnGroup group = SpawnGroup::kInherited;
  std::vector<int> blocked_signals = {};  // the others are not blocked
  bool has_default_actions = false;       // else it ignores the signals that this process ignores
};

// Returns when the program runs. The caller reaps the process. kNotFound: there is no such program.
Result<pid_t> spawn_program(const SpawnOptions& options);

// Waits for the end of a child, and reaps it. Returns its exit code; after a signal 128 and the signal's number, as a
// shell does.
int wait_for_exit(pid_t pid);

// Runs a program without input, and returns what it writes to its output, at most 1 MiB, and to its standard error,
// unless that is set. kDeadlineExceeded: it was not done in time. At the end its process group gets SIGKILL.
Result<std::string> output_of(SpawnOptions options, Deadline deadline);

}  // namespace hvd
