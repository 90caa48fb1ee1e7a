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
// Returns the frames in the output of faulthandler.
PythonStack read_faulthandler(std::string_view text);

// Returns `File "train.py", line 30 in read_shard`, the format of faulthandler; escaped for a terminal.
std::string describe_frame(const PythonFrame& frame);
// Returns the innermost frame outside of installed packages, else the innermost frame; null without frames.
const PythonFrame* own_frame(const PythonStack& stack);
// Returns "train.py:30" for own_frame(); empty without frames.
std::string place_of(const PythonStack& stack);

}  // namespace hvd::launcher
