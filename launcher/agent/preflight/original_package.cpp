#include "launcher/agent/preflight/original_package.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.h"
#include "launcher/agent/host/python_site.h"
#include "launcher/agent/host/python_sources.h"
#include "launcher/program/command_file.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

bool has_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Statements that are indented may never run: a program may do without Horovod.
bool imports_horovod(std::string_view source) {
  for (const std::string& line : split(source, '\n')) {
    if (line.starts_with(' ') || line.starts_with('\t')) continue;
    for (const std::string& statement : split(line, ';')) {
      const bool is_it = std::ranges::any_of(imports_of(statement), [](const std::string& name) {
        return name == "horovod" || name.starts_with("horovod.");
      });
      if (is_it) return true;
    }
  }
  return false;
}

// Both packages have common/basics.py: this project's imports the class of another of its files.
bool is_original(const fs::path& package) {
  const fs::path file = package / "common" / "basics.py";
  return has_file(file) &&
         text_of_file(file).find("from horovod._basics_object import") == std::string::npos;
}

}  // namespace

std::string find_original_package(const std::string& interpreter,
                                  const std::vector<std::string>& arguments,
                                  const std::string& working_directory,
                                  const Environment& environment) {
  const bool is_moved =
      std::ranges::any_of(std::to_array({"PYTHONHOME", "PYTHONSAFEPATH"}),
                          [&](const char* name) { return !value_of(environment, name).empty(); });
  const PythonProgram program = program_of_python(arguments);
  if (is_moved || !program.keeps_path) return {};
  fs::path own = working_directory;
  if (program.kind == PythonProgram::Kind::kScript) {
    std::error_code error;
    own = fs::canonical(own / program.text, error).parent_path();
  }
  std::vector<fs::path> folders = {own};
  for (fs::path& each : python_site(interpreter, working_directory, environment).folders) {
    folders.push_back(std::move(each));
  }
  const auto first = std::ranges::find_if(
      folders, [](const fs::path& each) { return has_file(each / "horovod" / "__init__.py"); });
  if (first == folders.end() || !is_original(*first / "horovod") ||
      look_in_sources(program, working_directory, imports_horovod, {}) != Mention::kSome) {
    return {};
  }
  return first->string();
}

}  // namespace hvd::launcher
