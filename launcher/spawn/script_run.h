// One run of a shell command that prints an answer, in its own session and process group, without standard input. The
// group gets SIGKILL when the shell ends, at the time limit or in kill(): only processes that have left the group
// survive. Lives on one loop. The caller of start() owns this object.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/asio.h"

namespace hvd::launcher {

struct ScriptLimits {
  std::chrono::milliseconds time{10'000};
  size_t output = 1 << 20;  // in bytes; further output is discarded
};

struct ScriptAnswer {
  std::string output;
  bool is_cut = false;   // the output exceeded the limit, and was cut after its last complete line
  bool is_late = false;  // the time limit ended the run
  bool is_killed = false;  // kill() ended the run, or end() was cancelled
  // "no such file; ended with exit code 127": the last lines of standard error and the exit status. Empty
  // after a success without standard error.
  std::string last_words;
  bool has_failed = false;  // nonzero exit code or a signal, including SIGKILL by this object

  bool is_good() const { return !has_failed && !is_late && !is_killed; }
};

class ScriptRun {
 public:
  // Receives each line of the script's standard error, without newline.
  using ErrorLine = std::function<void(std::string_view line)>;

  static Result<std::unique_ptr<ScriptRun>> start(net::asio::any_io_executor executor,
                                                  const std::string& command, ScriptLimits limits,
                                                  ErrorLine on_error_line);
  ~ScriptRun();

  // Call once. Returns after the end of the shell, or shortly after SIGKILL if the shell does not end.
  net::Task<ScriptAnswer> end();
  // Makes end() return soon.
  void kill();

  pid_t pid() const;

 private:
  struct State;
  explicit ScriptRun(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
