#include "launcher/agent/preflight/imported_package.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.h"
#include "launcher/agent/host/python_site.h"
#include "launcher/protocol/command_file.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

bool has_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns whether a statement of the source imports the package or a module in the package.
bool has_import_of(std::string_view source, const std::string& package, bool is_indented_too) {
  for (const std::string& line : split(source, '\n')) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || (begin > 0 && !is_indented_too)) continue;
    for (const std::string& statement : split(line.substr(begin), ';')) {
      const bool is_it = std::ranges::any_of(imports_of(statement), [&](const std::string& name) {
        return name == package || name.starts_with(package + ".");
      });
      if (is_it) return true;
    }
  }
  return false;
}

// Ignores indented statements, which may never run: a program may also work without Horovod.
bool has_import(std::string_view source) { return has_import_of(source, "horovod", false); }

bool has_import_of_backend(std::string_view source) {
  return has_import_of(source, "horovod.torch.distributed", true) ||
         has_import_of(source, "horovod_torch_backend", true);
}

// Ignores comments, which begin at a # without a quotation mark before it.
bool has_word(std::string_view source) {
  return std::ranges::any_of(split(source, '\n'), [](const std::string& line) {
    const size_t comment = line.find('#');
    const bool is_comment = comment < line.find_first_of("\"'");
    return line.find("horovod") < (is_comment ? comment : line.size());
  });
}

// The package of each project has common/basics.py, but only this project's file imports horovod._basics_object.
bool is_original(const fs::path& package) {
  const fs::path file = package / "common" / "basics.py";
  return has_file(file) &&
         text_of_file(file).find("from horovod._basics_object import") == std::string::npos;
}

}  // namespace

ImportedPackage find_imported_package(const std::string& interpreter,
                                      const std::vector<std::string>& arguments,
                                      const std::string& working_directory,
                                      const Environment& environment) {
  using enum ImportedPackage::Kind;
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
  PythonSite site = python_site(interpreter, working_directory, environment);
  site.folders.insert(site.folders.begin(), own);
  const auto first = std::ranges::find_if(site.folders, [](const fs::path& each) {
    return has_file(each / "horovod" / "__init__.py");
  });
  if (first == site.folders.end()) return {site.is_whole ? kNone : kUnknown, {}};
  const bool is_refused =
      is_original(*first / "horovod") &&
      look_in_sources(program, working_directory, has_import, {}) == Mention::kSome;
  return {is_refused ? kOriginal : kFound, first->string()};
}

Mention mentions_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                         const std::string& working_directory, const Environment& environment) {
  return look_in_sources(program_of_python(arguments), working_directory, has_word,
                         python_site(interpreter, working_directory, environment).named);
}

Mention imports_horovod(const std::string& interpreter, const std::vector<std::string>& arguments,
                        const std::string& working_directory, const Environment& environment) {
  return look_in_sources(program_of_python(arguments), working_directory, has_import,
                         python_site(interpreter, working_directory, environment).named);
}

Mention imports_torch_backend(const std::string& interpreter,
                              const std::vector<std::string>& arguments,
                              const std::string& working_directory,
                              const Environment& environment) {
  return look_in_sources(program_of_python(arguments), working_directory, has_import_of_backend,
                         python_site(interpreter, working_directory, environment).named);
}

std::string version_of_package(const std::string& folder) {
  constexpr std::string_view kSetting = "__version__ = \"";
  const std::string text = text_of_file(fs::path(folder) / "horovod" / "_version.py");
  const size_t at = text.find(kSetting);
  if (at == std::string::npos) return {};
  const size_t begin = at + kSetting.size();
  return printable(text.substr(begin, text.find('"', begin) - begin), 40);
}

std::string how_to_uninstall_original(const std::string& interpreter, const std::string& folder) {
  const fs::path around = fs::path(interpreter).parent_path().parent_path();
  const std::string python = printable(interpreter);
  const bool is_of_uv = text_of_file(around / "pyvenv.cfg").find("\nuv = ") != std::string::npos;
  const std::string uninstall = is_of_uv ? cat("uv pip uninstall --python ", python, " horovod")
                                         : cat(python, " -m pip uninstall horovod");
  if (!has_file(fs::path(folder) / "horovodrun" / "__main__.py")) return uninstall;
  return cat(uninstall, ", then ", python,
             " -m horovodrun --version, which prints how to restore the command horovodrun");
}

}  // namespace hvd::launcher
