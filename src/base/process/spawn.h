// Starts helper programs. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns `base` with values of `over` for the names that both have, followed by the other
// variables of `over`. If a name occurs twice in `over`, the last value wins.
Environment overlay(Environment base, const Environment& over);

// Returns "NAME=VALUE" for each variable.
std::vector<std::string> environment_strings(const Environment& environment);

// Returns pointers to the texts, which must outlive the pointers, and a final null. The
// pointers are not const because exec's parameters are not const; exec changes nothing.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

// Stands for /dev/null in place of a descriptor.
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
  // Descriptors above 2 (see open_pipe()), or kDevNull. Empty: the program inherits this process's stream.
  std::optional<int> input = {}, output = {}, errors = {};
  SpawnGroup group = SpawnGroup::kInherited;
  std::vector<int> blocked_signals = {};  // all other signals are unblocked
  bool has_default_actions = false;       // false: inherits ignored signals from this process
};

// Starts the program, and returns its process id. The caller must reap the process. kNotFound: the program does not
// exist.
Result<pid_t> spawn_program(const SpawnOptions& options);

// Waits for the end of a child, and reaps it. Returns its exit code, or 128 plus the number of the
// signal that ended it, as a shell does.
int wait_for_exit(pid_t pid);

// Runs a program without input. Returns at most about 1 MiB of its standard output, and of its standard error unless
// `errors` is set. kDeadlineExceeded: the program was late. At the end, sends SIGKILL to the program's process group.
Result<std::string> output_of(SpawnOptions options, Deadline deadline);

// A pipe for a standard stream of a started program.
struct Pipe {
  UniqueFd read, write;
};

// Creates a pipe whose two descriptors have O_CLOEXEC and numbers above 2.
Result<Pipe> open_pipe();

// Moves a descriptor above 2. In a process without standard streams, a new descriptor may get a
// number from 0 to 2, and the program's streams would overwrite it.
Status move_above_standard(UniqueFd& descriptor);

// Opens /dev/null in place of each closed standard stream: otherwise the next file or socket would get the
// stream's number and receive the program's output. Call it first in a program.
void open_standard_streams();

}  // namespace hvd
