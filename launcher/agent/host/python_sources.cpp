#include "launcher/agent/host/python_sources.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 200;
constexpr size_t kMostBytes = 4 << 20;

// A launcher's variables (HOROVOD_RANK, OMPI_COMM_WORLD_RANK, JAX_PROCESS_ID), the calls that read them, and
// libraries that do.
constexpr std::array<std::string_view, 14> kWords = {
    "rank",       "world_size",    "horovod",     "hvd",        "mpi4py",
    "process_id", "process_index", "distributed", "accelerat",  "deepspeed",
    "lightning",  "transformers",  "pmi",         "master_port"};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The first word of a name in an import, without "as" and comments.
std::string name_in(std::string_view part) {
  const std::string_view name = trim(part);
  return std::string(name.substr(0, name.find_first_of(" \t#)")));
}

// Modules that a statement imports: "import a.b, c as d" gives a.b and c, "from a import b" a and a.b.
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

// Puts the lists of "from a import (b,\n c)" on one line each.
std::string with_joined_imports(std::string_view text) {
  std::string joined(text);
  for (size_t at = joined.find(" import ("); at != std::string::npos;
       at = joined.find(" import (", at + 1)) {
    const size_t end = std::min(joined.find(')', at), joined.size());
    std::replace(joined.begin() + static_cast<ptrdiff_t>(at),
                 joined.begin() + static_cast<ptrdiff_t>(end), '\n', ' ');
  }
  return joined;
}

class Sources {
 public:
  explicit Sources(const std::function<bool(std::string_view)>& has_word) : has_word_(has_word) {}

  Mention read(const fs::path& file, const fs::path& root) {
    if (!seen_.insert(file.lexically_normal()).second) return Mention::kNone;
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (stream.bad() || seen_.size() > kMostFiles) return Mention::kUnknown;
    return read_text(text, file.parent_path(), root);
  }

  Mention read_text(std::string_view text, const fs::path& package, const fs::path& root) {
    bytes_ += text.size();
    const bool is_binary = text.find('\0') != std::string_view::npos;  // a zip file of modules
    if (bytes_ > kMostBytes || is_binary) return Mention::kUnknown;
    if (has_word_(text)) return Mention::kSome;
    for (const std::string& line : split(with_joined_imports(text), '\n')) {
      for (const std::string& statement : split(line, ';')) {
        for (const std::string& name : imports_of(statement)) {
          const Mention found = read_module(name, package, root);
          if (found != Mention::kNone) return found;
        }
      }
    }
    return Mention::kNone;
  }

  // A module that is not there is an installed one.
  Mention read_module(std::string name, const fs::path& package, const fs::path& root) {
    fs::path at = name.starts_with('.') ? package : root;
    if (name.starts_with('.')) {
      name.erase(0, 1);
      for (; name.starts_with('.'); name.erase(0, 1)) at = at.parent_path();
    }
    for (const std::string& part : split(name, '.')) {
      if (part.empty()) continue;
      at /= part;
      if (!is_file(at / "__init__.py")) continue;
      const Mention found = read(at / "__init__.py", root);
      if (found != Mention::kNone) return found;
    }
    const fs::path file = fs::path(at).concat(".py");
    return is_file(file) ? read(file, root) : Mention::kNone;
  }

 private:
  const std::function<bool(std::string_view)>& has_word_;
  std::set<fs::path> seen_;
  size_t bytes_ = 0;
};

bool names_python(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);
  return program.starts_with("python") || program.starts_with("pypy");
}

Mention look_in_module(const std::string& name, const fs::path& folder, Sources& sources) {
  fs::path module = folder;
  for (const std::string& part : split(name, '.')) module /= part;
  const fs::path main =
      is_file(module / "__main__.py") ? module / "__main__.py" : fs::path(module).concat(".py");
  if (!is_file(main)) return Mention::kUnknown;
  const Mention found = sources.read(main, folder);
  return found != Mention::kNone ? found : sources.read_module(name, folder, folder);
}

}  // namespace

Mention look_in_sources(const PythonProgram& program, const std::string& folder,
                        const std::function<bool(std::string_view)>& has_word) {
  using enum PythonProgram::Kind;
  Sources sources(has_word);
  if (program.kind == kModule) return look_in_module(program.text, folder, sources);
  if (program.kind == kCode) return sources.read_text(program.text, folder, folder);
  if (program.kind != kScript) return Mention::kUnknown;
  // Python searches the folder that holds the file, not a link to it.
  std::error_code error;
  const fs::path script = fs::canonical(fs::path(folder) / program.text, error);
  return is_file(script) ? sources.read(script, script.parent_path()) : Mention::kUnknown;
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
         look_in_sources(program, folder, mentions_ranks) == Mention::kNone;
}

}  // namespace hvd::launcher
