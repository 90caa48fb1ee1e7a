// Analyses the last standard error output of a failed rank: selects the lines for the report, and
// gives advice on common Python errors. The report of a job calls it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// The last ten lines of `text`, each of which begins with a tag of `tag` bytes. A Python traceback at its end loses
// the frames of the package horovod, and the deepest frame of the user's own code comes first where it
// lies before the last ten lines. Tracebacks that Python prints after it while the program exits are left out.
std::string last_lines(std::string_view text, size_t tag = 0);

// The line that names the exception with which the program ended (traceback.h), without its tag, or empty.
std::string exception_of(std::string_view text, size_t tag = 0);

// The launcher's knowledge of the rank that wrote the lines.
struct RankContext {
  std::string interpreter{};  // path of the Python that ran it, as its host found it; may be empty
  std::string package_folder{};  // where this horovodrun's Python package lies; may be empty
  std::string
      package_python{};  // path of the Python that this horovodrun was installed for; may be empty
  // path of a Python of this machine that has the module of missing_module(); may be empty
  std::string module_python{};
  bool has_environment = false;  // --stage-env
  std::string program{};         // the first word of the ranks' command, without its folder
  bool has_package = false;      // PYTHONPATH names this horovodrun's package (--ship)
  bool may_be_original = false;  // --insecure-compat: ranks of the original Horovod are meant
  bool lacks_input = false;      // standard input goes to rank 0 only, and this is another
};

// The module that the last line says is missing, or empty.
std::string missing_module(std::string_view lines);

// A clause for the end of the report's sentence, with its "; ", or empty.
std::string advice_on(std::string_view lines, const RankContext& rank);

}  // namespace hvd::launcher
