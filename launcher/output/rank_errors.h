// Analyses the last standard error output of a failed rank: selects the lines for the report, and gives advice on
// common Python errors. LineRouter and the end report of a job call this code. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// Returns the last ten lines of `text`; each line begins with a tag of `tag` bytes. Removes frames of
// the package horovod from a Python traceback at its end. The deepest frame of the user's code comes
// first if it lies before the last ten lines. Omits tracebacks that Python prints while exiting.
std::string last_lines(std::string_view text, size_t tag = 0);

// Returns the line of the exception that ended the program (traceback.h), without its tag, or an empty text.
std::string exception_of(std::string_view text, size_t tag = 0);

// Facts about the rank that wrote the lines.
struct RankContext {
  std::string interpreter{};     // path of the rank's Python, found by its host; may be empty
  std::string package_folder{};  // this horovodrun's Python package; may be empty
  std::string package_python{};  // Python for which this horovodrun was installed; may be empty
  // path of a Python on this machine that can import missing_module(); may be empty
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
