#include "launcher/check/interpreter.h"

#include <filesystem>

#include "base/text.h"
#include "launcher/plan/installation.h"
#include "launcher/protocol/command_file.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const Options& options) {
  std::error_code error;
  return options.settings.job.wdir.has_value() ? options.settings.job.wdir.value_or("")
                                               : fs::current_path(error).string();
}

// Returns an empty text if the command does not run Python, and an error if its program does not exist.
Result<std::string> interpreter_of_command(const Options& options, const std::string& search_path) {
  if (options.command.empty()) return std::string();
  const std::string& program = options.command[0];
  const std::string folder = folder_of(options);
  if (program.ends_with(".py")) {
    const Environment all = environment();
    const auto script = find_command(
        options.command, {folder, search_path, all, find_environment_python(executable_folder())});
    if (!script.ok()) return script.status();
    return python_of(script->path, folder, search_path);
  }
  const auto found = find_program(program, folder, search_path);
  if (found.ok()) return python_of(*found, folder, search_path);
  if (is_python(program)) return program;  // the rows report that this Python cannot run
  return found.status();
}

// Returns the active environment's Python, by its variable or as the first in PATH; may be empty.
std::string active_environment(const std::string& first_in_path) {
  std::error_code error;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto named = environment_variable(name);
    if (named && fs::exists(fs::path(*named) / "bin/python3", error))
      return *named + "/bin/python3";
  }
  const fs::path around = fs::path(first_in_path).parent_path().parent_path();
  return !around.empty() && fs::exists(around / "pyvenv.cfg", error) ? first_in_path : "";
}

}  // namespace

Status check_named_program(const Options& options) {
  const std::string search_path = environment_variable("PATH").value_or("");
  const Status status = interpreter_of_command(options, search_path).status();
  const bool has_rows = options.settings.questions.json || options.settings.job.verbose;
  if (!status.ok() || has_rows || options.command.empty() || !is_python(options.command[0]))
    return status;
  return find_program(options.command[0], folder_of(options), search_path).status();
}

std::string choose_interpreter(const Options& options) {
  const std::string search_path = environment_variable("PATH").value_or("");
  const auto of_command = interpreter_of_command(options, search_path);
  if (of_command.ok() && !of_command->empty()) return *of_command;
  const auto first = find_program("python3", "/", search_path);
  std::string active = active_environment(first.ok() ? *first : "");
  if (!active.empty()) return active;
  std::string beside = find_environment_python(executable_folder());
  if (beside.empty()) beside = find_python(executable_folder());
  return beside.empty() ? (first.ok() ? *first : "python3") : beside;
}

}  // namespace hvd::launcher
