#include "launcher/protocol/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

namespace {

constexpr size_t kMostOfPath = 4096;

std::string absolute(std::string_view path, const std::string& working_directory) {
  if (!path.empty() && path.front() == '/') return std::string(path);
  return path.empty() ? working_directory : cat(working_directory, "/", path);
}

bool is_runnable(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> find_on_path(std::string_view program,
                                        const std::string& working_directory,
                                        std::string_view search_path) {
  for (const std::string& directory : split(search_path, ':')) {
    const std::string path = cat(absolute(directory, working_directory), "/", program);
    if (is_runnable(path)) return path;
  }
  return {};
}

// Finds a file of that name on PATH without execute permission, for the error.
std::optional<std::string> search_unrunnable(std::string_view program,
                                             const std::string& working_directory,
                                             std::string_view search_path) {
  for (const std::string& directory : split(search_path, ':')) {
    const std::string path = cat(absolute(directory, working_directory), "/", program);
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) return path;
  }
  return {};
}

// Returns an error if the word is probably not a program: a variable, or a quoted command.
Status misread(const std::string& program, const std::string& working_directory,
               std::string_view search_path) {
  const std::string sentence = cat("program '", printable(program), "' was not found; ");
  const size_t name =
      program.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
  const bool is_digit = program[0] >= '0' && program[0] <= '9';
  if (name != std::string::npos && name > 0 && program[name] == '=' && !is_digit) {
    return not_found(cat(sentence, "it looks like a variable for the ranks: write -x ",
                         shell_quote(printable(program)), " before the command"));
  }
  const size_t blank = program.find(' ');
  if (blank == std::string::npos) return {};
  const std::string first = program.substr(0, blank);
  const bool is_there = first.find('/') == std::string::npos
                            ? find_on_path(first, working_directory, search_path).has_value()
                            : is_runnable(absolute(first, working_directory));
  if (!is_there) return {};
  return not_found(cat(sentence,
                       "it is one word with blanks in it: remove the quotes around it, so "
                       "that '",
                       printable(first), "' is the program"));
}

Status not_on_path(const std::string& program, const std::string& working_directory,
                   std::string_view search_path) {
  if (const auto path = search_unrunnable(program, working_directory, search_path)) {
    return permission_denied(cat("program '", printable(program), "' may not be executed: ", *path,
                                 " lacks the permission (chmod +x)"));
  }
  std::string sentence = cat("program '", printable(program), "' was not found on PATH (",
                             printable(search_path, kMostOfPath), ")");
  HVD_RETURN_IF_ERROR(misread(program, working_directory, search_path));
  if (program == "python" && find_on_path("python3", working_directory, search_path)) {
    return not_found(sentence + ", but 'python3' is there: write python3 in the command");
  }
  struct stat info {};
  const std::string local = absolute(program, working_directory);
  if (::stat(local.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
    return not_found(
        cat(sentence, ", but it is in the working directory: write ./", printable(program)));
  }
  return not_found(std::move(sentence));
}

// Returns the text after "#!" in a script's first line; empty if the file is not a script.
std::string interpreter_text(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char buffer[256];
  const ssize_t size = file ? ::read(file.get(), buffer, sizeof buffer) : -1;
  std::string_view text(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  if (!text.starts_with("#!")) return {};
  return std::string(text.substr(2, text.find('\n') - 2));
}

// Returns the words of the text after "#!", separated at spaces, without the -S of `env -S`.
std::vector<std::string> interpreter_line(const std::string& path) {
  std::vector<std::string> words;
  for (const std::string& word : split(interpreter_text(path), ' ')) {
    if (!trim(word).empty()) words.emplace_back(trim(word));
  }
  const bool is_divided = words.size() > 1 && words[0].ends_with("/env") && words[1] == "-S";
  if (is_divided) words.erase(words.begin() + 1);
  return words;
}

Status check_interpreter(const std::string& program, const std::string& path,
                         const std::string& working_directory, std::string_view search_path) {
  const auto words = interpreter_line(path);
  if (words.empty()) return {};
  if (interpreter_text(path).ends_with('\r')) {
    return failed_precondition(cat("program '", program,
                                   "' is a script whose first line ends in a "
                                   "carriage return, which the kernel takes for a part of it; run: "
                                   "sed -i 's/\\r$//' ",
                                   shell_quote(path)));
  }
  const std::string interpreter = absolute(words[0], working_directory);
  if (!is_runnable(interpreter)) {
    return not_found(cat("program '", printable(program), "' is a script whose interpreter '",
                         printable(words[0]), "' is missing or may not be executed"));
  }
  const bool is_env = words[0].ends_with("/env") && words.size() == 2 && words[1][0] != '-' &&
                      words[1].find('/') == std::string::npos;
  if (!is_env || find_on_path(words[1], working_directory, search_path)) return {};
  return not_on_path(printable(words[1]), working_directory, search_path)
      .with_context(
          cat("program '", printable(program), "' is a script for '", printable(words[1]), "'"));
}

}  // namespace

std::string interpreter_of(const std::string& path, const std::string& working_directory,
                           std::string_view search_path) {
  const auto words = interpreter_line(path);
  if (words.empty()) return path;
  if (!words[0].ends_with("/env")) return absolute(words[0], working_directory);
  if (words.size() < 2) return {};
  return find_on_path(words[1], working_directory, search_path).value_or("");
}

std::string* python_word(std::vector<std::string>& command) {
  auto word = command.begin();
  if (command.size() > 1 && command[1] == "--check-build") {
    word = std::find(command.begin(), command.end(), "--");
    if (word != command.end()) ++word;
  }
  return word != command.end() && is_python(*word) ? &*word : nullptr;
}

bool is_python(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (!name.starts_with("python")) return false;
  name.remove_prefix(6);
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

std::string python_of(const std::string& path, const std::string& working_directory,
                      std::string_view search_path) {
  if (is_python(path)) return path;
  std::string interpreter = interpreter_of(path, working_directory, search_path);
  return is_python(interpreter) ? interpreter : "";
}

std::vector<std::string> options_of_interpreter(const std::string& path) {
  std::vector<std::string> words = interpreter_line(path);
  const size_t names = !words.empty() && words[0].ends_with("/env") ? 2 : 1;
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(std::min(names, words.size())));
  return words;
}

bool has_horovod_alone(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(fs::path(folder) / "horovod" / "__init__.py", error)) return false;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool names_backend = name.starts_with("horovod_torch_backend");
    if (name != "horovod" && name != "__pycache__" && !names_backend) return false;
  }
  return !error;
}

Environment parse_environment(std::string_view text) {
  Environment environment;
  for (const std::string& entry : split(text, '\0')) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::string_view value_of(const Environment& environment, std::string_view name) {
  for (const auto& [each, value] : environment) {
    if (each == name) return value;
  }
  return {};
}

Status check_working_directory(const std::string& directory) {
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0) {
    const int error = errno;
    if (error == ENOENT) {
      return not_found(cat("the working directory '", directory,
                           "' does not exist on this host: "
                           "create it there, or copy your current directory to every host with "
                           "--stage ."));
    }
    return system_error(cat("the working directory '", directory, "' cannot be entered"), error);
  }
  if (!S_ISDIR(info.st_mode)) {
    return failed_precondition(cat("the working directory '", directory, "' is not a directory"));
  }
  if (::access(directory.c_str(), X_OK) != 0) {
    return system_error(cat("the working directory '", directory, "' cannot be entered"), errno);
  }
  return {};
}

Result<std::string> find_program(const std::string& program, const std::string& working_directory,
                                 std::string_view search_path) {
  if (program.empty()) return invalid_argument("the command's first word, the program, is empty");
  std::string path;
  if (program.find('/') == std::string::npos) {
    auto found = find_on_path(program, working_directory, search_path);
    if (!found) return not_on_path(program, working_directory, search_path);
    path = std::move(*found);
  } else {
    path = absolute(program, working_directory);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      const int error = errno;
      HVD_RETURN_IF_ERROR(misread(program, working_directory, search_path));
      return system_error(cat("program '", printable(program), "' cannot be run"), error);
    }
    if (S_ISDIR(info.st_mode)) {
      return failed_precondition(cat("program '", printable(program), "' is a directory"));
    }
    if (!is_runnable(path)) {
      return permission_denied(cat("program '", printable(program),
                                   "' may not be executed: chmod +x it, or write its interpreter "
                                   "before it"));
    }
  }
  HVD_RETURN_IF_ERROR(check_interpreter(program, path, working_directory, search_path));
  return path;
}

}  // namespace hvd::launcher
