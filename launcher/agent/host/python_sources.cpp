#include "launcher/agent/host/python_sources.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 200;
constexpr size_t kMostBytes = 4 << 20;

// Variables of a launcher (HOROVOD_RANK, OMPI_COMM_WORLD_RANK, JAX_PROCESS_ID), calls that read them, and
// libraries that read them.
constexpr std::array<std::string_view, 14> kWords = {
    "rank",       "world_size",    "horovod",     "hvd",        "mpi4py",
    "process_id", "process_index", "distributed", "accelerat",  "deepspeed",
    "lightning",  "transformers",  "pmi",         "master_port"};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns the name in one part of an import statement, without "as" and comments.
std::string name_in(std::string_view part) {
  const std::string_view name = trim(part);
  return std::string(name.substr(0, name.find_first_of(" \t#)")));
}

// Returns the text with each import statement on one line, and with spaces instead of tabs.
std::string with_joined_imports(std::string_view text) {
  std::string joined(text);
  std::ranges::replace(joined, '\t', ' ');
  for (size_t at = joined.find("\\\n"); at != std::string::npos; at = joined.find("\\\n", at)) {
    joined.replace(at, 2, "  ");
  }
  for (size_t at = joined.find(" import("); at != std::string::npos;
       at = joined.find(" import(", at)) {
    joined.insert(at + 7, " ");
  }
  for (size_t at = joined.find(" import ("); at != std::string::npos;
       at = joined.find(" import (", at + 1)) {
    const size_t end = std::min(joined.find(')', at), joined.size());
    std::replace(joined.begin() + static_cast<ptrdiff_t>(at),
                 joined.begin() + static_cast<ptrdiff_t>(end), '\n', ' ');
  }
  return joined;
}

bool is_file_of(const fs::path& folder, const std::string& module) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(module + ".") && name.ends_with(".so")) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> imports_of(std::string_view statement) {
  std::vector<std::string> names;
  statement = trim(statement);
  if (statement.starts_with("import ")) {
    for (const std::string& part : split(statement.substr(7), ',')) names.push_back(name_in(part));
  } else if (statement.starts_with("from ")) {
    statement.remove_prefix(5);
    const size_t end = statement.find(" import ");
    if (end == std::string_view::npos) return names;
    const std::string module(trim(statement.substr(0, end)));
    names.push_back(module);
    std::string_view list = trim(statement.substr(end + 8));
    if (list.starts_with('(')) list.remove_prefix(1);
    for (const std::string& part : split(list, ',')) {
      names.push_back(cat(module, ".", name_in(part)));
    }
  }
  return names;
}

namespace {

class Sources {
 public:
  // `roots`: the folders in which modules are searched, the program's own folder first.
  Sources(const std::function<bool(std::string_view)>& has_word, std::vector<fs::path> roots)
      : has_word_(has_word), roots_(std::move(roots)) {}

  void read(const fs::path& file) {
    if (has_found_ || !seen_.insert(file.lexically_normal()).second) return;
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (stream.bad() || seen_.size() > kMostFiles) {
      is_unknown_ = true;
      return;
    }
    read_text(text, file.parent_path());
  }

  void read_text(std::string_view text, const fs::path& package) {
    bytes_ += text.size();
    const bool is_binary = text.find('\0') != std::string_view::npos;  // for example a zip file
    if (bytes_ > kMostBytes || is_binary) {
      is_unknown_ = true;
      return;
    }
    has_found_ = has_found_ || has_word_(text);
    // An import may follow another statement, or a colon, on the same line.
    std::string lines = with_joined_imports(text);
    std::ranges::replace(lines, ';', '\n');
    std::ranges::replace(lines, ':', '\n');
    for (const std::string& statement : split(lines, '\n')) {
      for (const std::string& name : imports_of(statement)) read_module(name, package);
    }
  }

  // A module outside of these folders is an installed module, and is not read.
  void read_module(std::string name, const fs::path& package) {
    if (!name.starts_with('.')) {
      // Read this project's package only in the program's own folder.
      const bool is_known = name == "horovod" || name.starts_with("horovod.");
      for (const fs::path& root : std::span(roots_).first(is_known ? 1 : roots_.size())) {
        if (read_below(root, name)) return;
      }
      return;
    }
    fs::path at = package;
    name.erase(0, 1);
    for (; name.starts_with('.'); name.erase(0, 1)) at = at.parent_path();
    read_below(at, name);
  }

  void not_readable() { is_unknown_ = true; }

  Mention found() const {
    if (has_found_) return Mention::kSome;
    return is_unknown_ ? Mention::kUnknown : Mention::kNone;
  }

 private:
  // Returns whether a part of the name exists. A compiled module sets is_unknown_.
  bool read_below(const fs::path& folder, const std::string& name) {
    fs::path at = folder;
    bool is_there = false;
    for (const std::string& part : split(name, '.')) {
      if (part.empty()) continue;
      if (!is_unknown_ && is_file_of(at, part)) is_there = is_unknown_ = true;
      at /= part;
      if (!is_file(at / "__init__.py")) continue;
      is_there = true;
      read(at / "__init__.py");
    }
    const fs::path file = fs::path(at).concat(".py");
    if (!is_file(file)) return is_there;
    read(file);
    return true;
  }

  const std::function<bool(std::string_view)>& has_word_;
  const std::vector<fs::path> roots_;
  std::set<fs::path> seen_;
  size_t bytes_ = 0;
  bool has_found_ = false;
  bool is_unknown_ = false;
};

bool names_python(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);
  return program.starts_with("python") || program.starts_with("pypy");
}

void look_in_module(const std::string& name, const fs::path& folder, Sources& sources) {
  fs::path module = folder;
  for (const std::string& part : split(name, '.')) module /= part;
  const fs::path main =
      is_file(module / "__main__.py") ? module / "__main__.py" : fs::path(module).concat(".py");
  if (!is_file(main)) return sources.not_readable();
  sources.read(main);
  sources.read_module(name, folder);
}

}  // namespace

Mention look_in_sources(const PythonProgram& program, const std::string& folder,
                        const std::function<bool(std::string_view)>& has_word,
                        std::span<const fs::path> more_folders) {
  using enum PythonProgram::Kind;
  std::error_code error;
  fs::path own = folder;
  // If the script is a link, Python searches the folder of the file, not the folder of the link.
  const fs::path script =
      program.kind == kScript ? fs::canonical(own / program.text, error) : fs::path();
  if (program.kind == kScript) own = script.parent_path();
  std::vector<fs::path> roots = {own};
  roots.insert(roots.end(), more_folders.begin(), more_folders.end());
  Sources sources(has_word, std::move(roots));
  if (program.kind == kModule) {
    look_in_module(program.text, own, sources);
  } else if (program.kind == kCode) {
    sources.read_text(program.text, own);
  } else if (program.kind == kScript && is_file(script)) {
    sources.read(script);
  } else {
    sources.not_readable();
  }
  return sources.found();
}

bool mentions_ranks(std::string_view source) {
  const std::string text = to_lower(source);
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool has_no_word_of_ranks(const std::vector<std::string>& command, const std::string& folder) {
  if (command.empty()) return false;
  const bool is_script = command[0].ends_with(".py");
  if (!is_script && !names_python(command[0])) return false;
  const PythonProgram program = program_of_python(std::span(command).subspan(is_script ? 0 : 1));
  return program.kind != PythonProgram::Kind::kCode &&
         look_in_sources(program, folder, mentions_ranks, {}) == Mention::kNone;
}

}  // namespace hvd::launcher
