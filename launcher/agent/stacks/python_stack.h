// The stack of a Python thread, parsed from the output of py-spy and of Python's faulthandler. Pure; the parsers
// accept any text.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

struct PythonFrame {
  std::string function;
  std::string file;
  int64_t line = 0;  // 0: a native function, with its library as the file
  friend bool operator==(const PythonFrame&, const PythonFrame&) = default;
};
using PythonStack = std::vector<PythonFrame>;  // innermost call first

// Returns the main thread's stack from the output of `py-spy dump --json`.
Result<PythonStack> read_py_spy(std::string_view json, pid_t pid);
PythonStack read_faulthandler(std::string_view text);

// Returns `File "train.py", line 30 in read_shard`, the format of faulthandler; escaped for a terminal.
std::string describe_frame(const PythonFrame& frame);
// Returns the innermost frame outside of installed packages, else the innermost frame; null without frames.
const PythonFrame* own_frame(const PythonStack& stack);
// Returns "train.py:30" for own_frame(); empty without frames.
std::string place_of(const PythonStack& stack);

// The facts that determine whether the agent may read the memory of a process.
struct ReadAccess {
  int64_t uid = 0;          // user of the process
  int64_t own_uid = 0;      // user of the agent
  int64_t yama_scope = -1;  // kernel.yama.ptrace_scope; -1: a kernel without Yama
  // The agent started the process, which has permitted the agent to read it.
  bool is_first_process = false;
};

// Explains why py-spy could not read the stack of a process, and the remedy, as one sentence. `errors`: py-spy's
// standard error. Pure.
std::string why_no_stack(std::string_view errors, const ReadAccess& access);

// Returns "3 processes with Python run side by side in this rank, ...", for a rank with several possible Pythons.
std::string several_pythons(size_t count);

// The sentence about a host without py-spy, and how to install it.
inline constexpr std::string_view kInstallPySpy =
    "Python stacks of these ranks need py-spy, which is neither on this host nor next to "
    "horovodrun: "
    "pip install 'horovodrun[stacks]' where horovodrun runs, or pip install py-spy on this host";

}  // namespace hvd::launcher
