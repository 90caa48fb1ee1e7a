#include "launcher/protocol/command_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr char kNameIt[] = ", or write a Python before the script, as in: python3 ";

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool names_interpreter(const std::string& path) {
  char first[2] = "";
  std::ifstream file(path, std::ios::binary);
  return file.read(first, 2) && first[0] == '#' && first[1] == '!';
}

std::string in_folder(std::string_view path, const std::string& folder) {
  return path.starts_with('/') ? std::string(path) : cat(folder, "/", path);
}

Status check_script(const std::string& script, const CommandPlace& place) {
  const std::string& folder = place.working_directory;
  if (::access(in_folder(script, folder).c_str(), R_OK) == 0) return {};
  const int error = errno;
  const bool is_absolute = script.starts_with('/');
  const std::string where = is_absolute ? "" : cat(" in ", folder);
  if (error != ENOENT) {
    return system_error(cat("script '", printable(script), "'", where, " cannot be read"), error);
  }
  return not_found(cat("script '", printable(script), "' does not exist", where, " on this host",
                       is_absolute || !place.lacks_stage
                           ? ""
                           : ": copy it there, or your current directory to every host with "
                             "--stage ."));
}

// Checks the script of a shell. A shell also looks for a script without a slash on PATH.
Status check_script_of_shell(const std::string& script, const CommandPlace& place) {
  const Status status = check_script(script, place);
  if (status.ok() || script.find('/') != std::string::npos) return status;
  const std::vector<std::string> folders = split(place.search_path, ':');
  const bool is_on_path = std::ranges::any_of(
      folders, [&](const std::string& folder) { return is_file(cat(folder, "/", script)); });
  return is_on_path ? Status() : status;
}

bool is_shell(std::string_view path) {
  constexpr std::string_view kShells[] = {"sh", "bash", "dash", "zsh", "ksh"};
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::find(kShells, name) != std::end(kShells);
}

Status check_arguments(const CommandFile& file, const CommandPlace& place) {
  const std::span<const std::string> arguments = std::span(file.command).subspan(1);
  if (is_python(file.path)) {
    const PythonProgram program = program_of_python(arguments);
    if (program.kind != PythonProgram::Kind::kScript) return {};
    return check_script(program.text, place);
  }
  const auto script = is_shell(file.path) ? script_of_shell(arguments) : std::nullopt;
  return script ? check_script_of_shell(*script, place) : Status();
}

Result<CommandFile> run_by_python(const std::vector<std::string>& command,
                                  const CommandPlace& place) {
  const auto python = python_for_scripts(place);
  if (!python.ok()) {
    return Status(python.error().code(),
                  cat(python.error().message(), kNameIt, printable(command[0])));
  }
  CommandFile file{*python, {*python}};
  file.command.insert(file.command.end(), command.begin(), command.end());
  return file;
}

}  // namespace

Result<CommandFile> find_command(const std::vector<std::string>& command,
                                 const CommandPlace& place) {
  const std::string& program = command[0];
  const std::string path = in_folder(program, place.working_directory);
  const bool is_script = program.ends_with(".py");
  if (is_script && is_file(path)) {
    if (::access(path.c_str(), X_OK) != 0 || !names_interpreter(path)) {
      HVD_RETURN_IF_ERROR(check_script(program, place));
      return run_by_python(command, place);
    }
    HVD_ASSIGN_OR_RETURN(const std::string found,
                         find_program(path, place.working_directory, place.search_path));
    return CommandFile{found, command};
  }
  const auto found = find_program(program, place.working_directory, place.search_path);
  if (!found.ok()) {
    // If the word has blanks, the error about the word is more helpful.
    const bool is_missing = is_script && program.find(' ') == std::string::npos &&
                            found.error().code() == Code::kNotFound;
    return is_missing ? check_script(program, place) : found.error();
  }
  CommandFile file{*found, command};
  HVD_RETURN_IF_ERROR(check_arguments(file, place));
  return file;
}

Result<std::string> python_for_scripts(const CommandPlace& place) {
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string folder(value_of(place.environment, name));
    if (folder.empty()) continue;
    if (!is_folder(folder)) {
      return not_found(
          cat(name, " names the active environment ", printable(folder),
              ", which is not on this host; create it there, give all hosts its packages "
              "by --stage-env"));
    }
    std::string python = folder + "/bin/python3";
    if (::access(python.c_str(), X_OK) == 0) return python;
  }
  if (!place.installed_python.empty()) {
    if (::access(place.installed_python.c_str(), X_OK) == 0) return place.installed_python;
    return not_found(cat("the Python of horovodrun's environment, ",
                         printable(place.installed_python),
                         ", is not on this host; create the environment there"));
  }
  return find_program("python3", place.working_directory, place.search_path);
}

PythonProgram program_of_python(std::span<const std::string> arguments) {
  using enum PythonProgram::Kind;
  PythonProgram program;
  for (size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (word == "--check-hash-based-pycs") {
      ++at;
      continue;
    }
    if (!word.starts_with('-')) {
      program.kind = kScript;
      program.text = word;
      return program;
    }
    if (word == "-" || word.starts_with("--")) return program;
    // In a word of several option letters, the first letter with a value ends the options.
    const size_t value = word.find_first_of("cmhV?WX");
    if (word.substr(0, value).find_first_of("EIPsS") != std::string::npos) {
      program.keeps_path = false;
    }
    const size_t isolating = word.substr(0, value).find_first_of("EI");
    if (isolating != std::string::npos) program.ignores_pythonpath = {'-', word[isolating]};
    if (value == std::string::npos) continue;
    const char option = word[value];
    const bool is_next = value + 1 == word.size();
    if (option == 'W' || option == 'X') {
      if (is_next) ++at;
      continue;
    }
    if (option != 'c' && option != 'm') return program;
    program.kind = option == 'c' ? kCode : kModule;
    if (!is_next)
      program.text = word.substr(value + 1);
    else if (at + 1 < arguments.size())
      program.text = arguments[at + 1];
    return program;
  }
  return program;
}

std::optional<std::string> script_of_shell(std::span<const std::string> arguments) {
  for (size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (word == "--") {
      return at + 1 < arguments.size() ? std::optional(arguments[at + 1]) : std::nullopt;
    }
    if (!word.starts_with('-') && !word.starts_with('+')) return word;
    if (word.starts_with("--")) {
      if (word == "--rcfile" || word == "--init-file") ++at;
      if (word == "--help" || word == "--version") return {};
      continue;
    }
    if (word.size() == 1 || word.find_first_of("csD") != std::string::npos) return {};
    if (word.ends_with('o') || word.ends_with('O')) ++at;
  }
  return {};
}

}  // namespace hvd::launcher
