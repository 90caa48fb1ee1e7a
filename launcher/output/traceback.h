// Finds Python tracebacks in a rank's standard error. Selects its last lines for the report of a failure. Gives advice
// on common Python errors. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Returns the lines of a text, without their line ends.
std::vector<std::string_view> lines_of(std::string_view text);

// Returns the line without "[rank0]: ". PyTorch prints this text before each line of the final traceback of a rank in a
// process group.
std::string_view without_rank_of_torch(std::string_view line);
// Returns whether the line links two tracebacks, of which the second was raised while the first was handled.
bool links_tracebacks(std::string_view line);

struct Traceback {
  size_t begin = 0;  // index of the first line
  size_t name = 0;  // index of the line with the exception's name; `end` if no such line exists yet
  // Equals `name`, unless the message contains another traceback: of another process (a worker of PyTorch's
  // DataLoader), or of a TensorFlow graph. Then it is the exception's line of the innermost traceback.
  size_t exception = 0;
  size_t end = 0;           // index of the line after the traceback
  bool is_chained = false;  // the exception was raised while the previous exception was handled
  // Python has continued after the traceback of a destructor, a thread, an exit handler or another process.
  bool is_survived = false;
};

// `tag`: the length of the tag at the start of each line.
std::vector<Traceback> tracebacks_of(const std::vector<std::string_view>& lines, size_t tag);
// Returns the last traceback that Python did not survive, or null. It may have ended the program.
const Traceback* last_fatal(const std::vector<Traceback>& tracebacks);

// Returns the exception's line without the margin of an ExceptionGroup.
std::string exception_name(std::string_view line);

// One frame of a traceback: a line with the file's name, and the source lines after it, or an empty line in TensorFlow.
struct TracebackFrame {
  size_t begin;
  size_t end;
  size_t empty_end;
  std::string_view file;
  std::string_view function;
};

std::vector<TracebackFrame> frames_of(const std::vector<std::string_view>& lines);
// Returns whether the frame belongs to this project's package, wherever the package is installed.
bool is_of_horovod(const TracebackFrame& frame);
// Returns the innermost frame of the user's code, or the first frame if no frame is the user's. `frames` is not empty.
const TracebackFrame& users_frame(const std::vector<TracebackFrame>& frames);

// Returns the last ten lines of `text`; each line begins with a tag of `tag` bytes. Removes frames of the package
// horovod from a Python traceback at its end. If the deepest frame of the user's code lies before the last ten lines,
// it comes first. Omits tracebacks that Python prints while exiting.
std::string last_lines(std::string_view text, size_t tag = 0);

// Returns the line of the exception that ended the program, without its tag, or an empty text.
std::string exception_of(std::string_view text, size_t tag = 0);

// Facts about the rank that wrote the lines.
struct RankContext {
  std::string interpreter{};     // path of the rank's Python, found by its host; may be empty
  std::string package_folder{};  // this horovodrun's Python package; may be empty
  std::string package_python{};  // Python for which this horovodrun was installed; may be empty
  // Path of a Python on this machine that can import missing_module(); may be empty.
  std::string module_python{};
  bool has_environment = false;  // --stage-env
  std::string program{};         // first word of the ranks' command, without its folder
  bool has_package = false;      // PYTHONPATH has this horovodrun's package (--ship)
  bool may_be_original = false;  // --insecure-compat: ranks may be the original Horovod's
  bool lacks_input = false;      // standard input goes only to rank 0, and this is another rank
};

// Returns the missing module that the last line names, or an empty text.
std::string missing_module(std::string_view lines);

// Returns a clause that begins with "; ", for the end of the report's sentence; or an empty text.
std::string advice_on(std::string_view lines, const RankContext& rank);

}  // namespace hvd::launcher
