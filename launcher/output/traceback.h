// Finds the tracebacks of Python in lines that a rank wrote to its standard error. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// The lines of a text, without the bytes that end them.
std::vector<std::string_view> lines_of(std::string_view text);

// The line without "[rank0]: ", which PyTorch prints before each line of the traceback that ends a rank of a process
// group.
std::string_view without_rank_of_torch(std::string_view line);
// Whether the line stands between two tracebacks of which the second was raised while the first was handled.
bool links_tracebacks(std::string_view line);

struct Traceback {
  size_t begin = 0;  // its first line
  size_t name = 0;   // the line that names its exception; `end`: there is none yet
  // The same line, or the innermost where the message holds the traceback of another process (a worker of PyTorch's
  // DataLoader) or of a graph of TensorFlow.
  size_t exception = 0;
  size_t end = 0;           // behind that line
  bool is_chained = false;  // raised while the exception of the one before was handled
  // Python went on after it: it is that of a destructor, a thread, a handler at the exit or another process.
  bool is_survived = false;
};

// `tag` bytes at the start of each line are no part of it. A traceback begins at that column.
std::vector<Traceback> tracebacks_of(const std::vector<std::string_view>& lines, size_t tag);
// The one with which the program may have ended: the last that Python has not survived; or null.
const Traceback* last_fatal(const std::vector<Traceback>& tracebacks);

// The exception's line without the margin of an ExceptionGroup.
std::string exception_name(std::string_view line);

// One frame of a traceback: a line that names the file, and the lines of source behind it. TensorFlow
// writes an empty line in their place.
struct TracebackFrame {
  size_t begin;
  size_t end;
  size_t empty_end;
  std::string_view file;
  std::string_view function;
};

std::vector<TracebackFrame> frames_of(const std::vector<std::string_view>& lines);
// Whether it is one of the package of this project, wherever that is installed.
bool is_of_horovod(const TracebackFrame& frame);
// The innermost frame of the user's code; the first frame if none looks like it. `frames` is not empty.
const TracebackFrame& users_frame(const std::vector<TracebackFrame>& frames);

}  // namespace hvd::launcher
