#include "launcher/agent/host/python_sources.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

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

// Modules that a line imports: "import a.b, c as d" gives a.b and c, "from a import b" a and a.b.
std::vector<std::string> imports_of(std::string_view line) {
  std::vector<std::string> names;
  line = trim(line);
  if (line.starts_with("import ")) {
    for (const std::string& part : split(line.substr(7), ',')) {
      const std::string_view name = trim(part);
      names.emplace_back(name.substr(0, name.find_first_of(" \t#;")));
    }
  } else if (line.starts_with("from ")) {
    line.remove_prefix(5);
    const size_t end = line.find(" import ");
    if (end == std::string_view::npos) return names;
    const std::string module(trim(line.substr(0, end)));
    names.push_back(module);
    for (const std::string& part : split(line.substr(end + 8), ',')) {
      const std::string_view name = trim(part);
      names.push_back(cat(module, ".", name.substr(0, name.find_first_of(" \t#;)"))));
    }
  }
  return names;
}

// The sources that a program consists of, as far as they are beside it.
class Sources {
 public:
  // False: one of them mentions ranks, or they are too many.
  bool read(const fs::path& file, const fs::path& root) {
    if (!seen_.insert(file.lexically_normal()).second) return true;
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    bytes_ += text.size();
    if (stream.bad() || seen_.size() > kMostFiles || bytes_ > kMostBytes || mentions_ranks(text)) {
      return false;
    }
    for (const std::string& line : split(text, '\n')) {
      for (const std::string& name : imports_of(line)) {
        if (!read_module(name, file.parent_path(), root)) return false;
      }
    }
    return true;
  }

  // A module that is not there is an installed one.
  bool read_module(std::string name, const fs::path& package, const fs::path& root) {
    fs::path at = name.starts_with('.') ? package : root;
    if (name.starts_with('.')) {
      name.erase(0, 1);
      for (; name.starts_with('.'); name.erase(0, 1)) at = at.parent_path();
    }
    for (const std::string& part : split(name, '.')) {
      if (part.empty()) continue;
      at /= part;
      if (is_file(at / "__init__.py") && !read(at / "__init__.py", root)) return false;
    }
    const fs::path file = fs::path(at).concat(".py");
    return !is_file(file) || read(file, root);
  }

 private:
  std::set<fs::path> seen_;
  size_t bytes_ = 0;
};

bool names_python(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);
  return program.starts_with("python") || program.starts_with("pypy");
}

// The script, or "-m" and the module; empty without either.
std::vector<std::string> program_of(const std::vector<std::string>& command) {
  if (command.empty()) return {};
  if (command[0].ends_with(".py")) return {command[0]};
  if (!names_python(command[0])) return {};
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word == "-m" && i + 1 < command.size()) return {word, command[i + 1]};
    if (word == "-W" || word == "-X") {
      ++i;
    } else if (!word.starts_with('-')) {
      return {word};
    } else if (word == "-" || word.starts_with("-c") || word.starts_with("-m")) {
      return {};
    }
  }
  return {};
}

}  // namespace

bool mentions_ranks(std::string_view source) {
  const std::string text = to_lower(source);
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool has_no_word_of_ranks(const std::vector<std::string>& command, const std::string& folder) {
  const std::vector<std::string> program = program_of(command);
  if (program.empty()) return false;
  Sources sources;
  if (program.size() == 1) {
    const fs::path script = fs::path(folder) / program[0];
    return is_file(script) && sources.read(script, script.parent_path());
  }
  fs::path module = folder;
  for (const std::string& part : split(program[1], '.')) module /= part;
  const fs::path main =
      is_file(module / "__main__.py") ? module / "__main__.py" : fs::path(module).concat(".py");
  return is_file(main) && sources.read(main, folder) &&
         sources.read_module(program[1], folder, folder);
}

}  // namespace hvd::launcher
