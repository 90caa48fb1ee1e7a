#include "launcher/agent/preflight/original_package.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

using Folders = std::vector<fs::path>;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Reads at most 1 MiB, where imports are; returns nothing unless the path is a regular file.
std::string text_of(const fs::path& path) {
  std::error_code error;
  std::ifstream file;
  if (fs::is_regular_file(path, error)) file.open(path, std::ios::binary);
  std::string text(1 << 20, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

bool imports_horovod(std::string_view code) {
  for (const std::string& line : split(code, '\n')) {
    for (const std::string_view words : {"import horovod", "from horovod"}) {
      if (!line.starts_with(words)) continue;
      if (line.size() == words.size() ||
          std::string_view(" .,;#\r").find(line[words.size()]) != std::string_view::npos)
        return true;
    }
  }
  return false;
}

struct Program {
  fs::path folder;   // the script's folder, else the working directory
  std::string code;  // the code of -c, or of the script
  std::string module;
};

// Returns nothing for options that change the import path, and for a program from standard input.
Program program_of(const std::vector<std::string>& arguments,
                   const std::string& working_directory) {
  for (size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    const std::string next = at + 1 < arguments.size() ? arguments[at + 1] : "";
    if (word == "-c") return {working_directory, next, {}};
    if (word == "-m") return {working_directory, {}, next};
    if (word == "-W" || word == "-X") {
      ++at;
    } else if (!word.starts_with('-')) {
      std::error_code error;
      const fs::path script = fs::canonical(fs::path(working_directory) / word, error);
      return {script.parent_path(), text_of(script), {}};
    } else if (word.find_first_not_of("BObdiquvx", 1) != std::string::npos || word.size() == 1) {
      return {};
    }
  }
  return {};
}

// Returns the value of a key in pyvenv.cfg.
std::string value_in(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos && trim(std::string_view(line).substr(0, equals)) == key) {
      return std::string(trim(std::string_view(line).substr(equals + 1)));
    }
  }
  return {};
}

// Returns the site folders as the standard module `site` computes them, without .pth files.
Folders site_folders(const fs::path& interpreter, const Environment& environment) {
  std::error_code error;
  const std::string version =
      fs::canonical(interpreter, error).filename().string();  // "python3.11"
  const fs::path around = interpreter.parent_path().parent_path();
  const std::string settings = text_of(around / "pyvenv.cfg");
  const fs::path base =
      settings.empty() ? around : fs::path(value_in(settings, "home")).parent_path();
  Folders folders;
  if (!settings.empty()) {
    folders.push_back(around / "lib" / version / "site-packages");
    if (to_lower(value_in(settings, "include-system-site-packages")) != "true") return folders;
  }
  if (value_of(environment, "PYTHONNOUSERSITE").empty()) {
    const fs::path user = value_of(environment, "PYTHONUSERBASE");
    const fs::path home = value_of(environment, "HOME");
    folders.push_back((user.empty() ? home / ".local" : user) / "lib" / version / "site-packages");
  }
  // Debian's interpreter has the last two.
  folders.push_back(base / "lib" / version / "site-packages");
  folders.push_back(base / "local" / "lib" / version / "dist-packages");
  folders.push_back(base / "lib" / "python3" / "dist-packages");
  return folders;
}

std::string code_of_module(const std::string& module, const Folders& folders) {
  std::string path = module;
  std::replace(path.begin(), path.end(), '.', '/');
  for (const fs::path& folder : folders) {
    for (const fs::path& file : {folder / path / "__main__.py", folder / (path + ".py")}) {
      if (is_there(file)) return text_of(file);
    }
  }
  return {};
}

// Both packages have common/basics.py: this project's imports the class of another of its files.
bool is_original(const fs::path& package) {
  const fs::path file = package / "common" / "basics.py";
  return is_there(file) &&
         text_of(file).find("from horovod._basics_object import") == std::string::npos;
}

}  // namespace

std::string find_original_package(const std::string& interpreter,
                                  const std::vector<std::string>& arguments,
                                  const std::string& working_directory,
                                  const Environment& environment) {
  for (const std::string_view name : {"PYTHONHOME", "PYTHONSAFEPATH"}) {
    if (!value_of(environment, name).empty()) return {};
  }
  const Program program = program_of(arguments, working_directory);
  if (program.folder.empty()) return {};
  Folders folders = {program.folder};
  for (const std::string& each : split(value_of(environment, "PYTHONPATH"), ':')) {
    if (!each.empty()) folders.push_back(fs::path(working_directory) / each);
  }
  const bool is_module = !program.module.empty();
  if (!imports_horovod(is_module ? code_of_module(program.module, folders) : program.code))
    return {};
  for (fs::path& each : site_folders(interpreter, environment)) folders.push_back(std::move(each));
  for (const fs::path& folder : folders) {
    if (!is_there(folder / "horovod" / "__init__.py")) continue;
    return is_original(folder / "horovod") ? folder.string() : "";
  }
  return {};
}

}  // namespace hvd::launcher
