#include "launcher/agent/host/python_site.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

using Folders = std::vector<fs::path>;

bool is_on_disk(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool add_folder(Folders& folders, const fs::path& folder) {
  std::error_code error;
  const fs::path path = folder.lexically_normal();
  if (std::ranges::find(folders, path) != folders.end() || !fs::is_directory(path, error)) {
    return false;
  }
  folders.push_back(path);
  return true;
}

// Returns whether code in a .pth file may add folders, or import finders of editable installations.
bool may_change_path(std::string_view code) {
  return std::ranges::any_of(
      std::to_array<std::string_view>({"sitedir", "sys.path", "__editable__", "meta_path"}),
      [&](std::string_view word) { return code.find(word) != std::string_view::npos; });
}

// Adds the folder, and the folders that its .pth files name.
void add_site(PythonSite& site, const fs::path& folder) {
  if (!add_folder(site.folders, folder)) return;
  Folders files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".pth") files.push_back(at->path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    for (const std::string& line : split(text_of_file(file), '\n')) {
      const std::string_view name = trim(line);
      const bool is_code = line.starts_with("import ") || line.starts_with("import\t");
      if (is_code) {
        site.is_whole &= !may_change_path(line);
      } else if (!name.empty() && !name.starts_with('#') &&
                 add_folder(site.folders, folder / name)) {
        site.named.push_back(site.folders.back());
      }
    }
  }
}

// Adds the folders of an interpreter or of a virtual environment. Debian uses dist-packages, and Fedora
// uses lib64. `version` has the form "python3.11".
void add_prefix(PythonSite& site, const fs::path& prefix, const std::string& version) {
  const char* family = version.starts_with("pypy") ? "pypy3" : "python3";
  for (const fs::path& root : {prefix / "local", prefix}) {
    add_site(site, root / "lib64" / version / "site-packages");
    add_site(site, root / "lib" / version / "site-packages");
    if (root == prefix) add_site(site, root / "lib" / family / "dist-packages");
    add_site(site, root / "lib" / version / "dist-packages");
  }
}

std::string value_in(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos && trim(std::string_view(line).substr(0, equals)) == key) {
      return std::string(trim(std::string_view(line).substr(equals + 1)));
    }
  }
  return {};
}

// Returns an empty path if HOME is not set: Python then uses the folder of the user's account.
fs::path user_base(const std::string& named, const std::string& home) {
  if (!named.empty()) return named;
  return home.empty() ? fs::path() : fs::path(home) / ".local";
}

// Returns whether sitecustomize or usercustomize may add folders, as in environment modules, Nix and Guix.
bool may_add_folders(const fs::path& folder) {
  return std::ranges::any_of(
      std::to_array({"sitecustomize", "usercustomize"}), [&](const char* name) {
        if (is_on_disk(folder / name / "__init__.py")) return true;
        const std::string text = to_lower(text_of_file(folder / cat(name, ".py")));
        return text.find("path") != std::string::npos || text.find("sitedir") != std::string::npos;
      });
}

}  // namespace

std::string text_of_file(const fs::path& path) {
  std::error_code error;
  std::ifstream file;
  if (fs::is_regular_file(path, error)) file.open(path, std::ios::binary);
  if (!file.is_open()) return {};
  std::string text(std::min<uintmax_t>(fs::file_size(path, error), 1 << 20), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

PythonSite python_site(const fs::path& interpreter, const std::string& working_directory,
                       const Environment& environment) {
  PythonSite site;
  const auto text_of = [&](const char* name) { return std::string(value_of(environment, name)); };
  if (const std::string named = text_of("PYTHONPATH"); !named.empty()) {
    for (const std::string& each : split(named, ':')) {
      if (add_folder(site.folders, fs::path(working_directory) / each)) {
        site.named.push_back(site.folders.back());
      }
    }
  }
  std::error_code error;
  const fs::path real = fs::canonical(interpreter, error);
  const std::string version = real.filename().string();  // for example "python3.11"
  const fs::path around = interpreter.parent_path().parent_path();
  const std::string settings = text_of_file(around / "pyvenv.cfg");
  Folders prefixes = {real.parent_path().parent_path()};
  bool has_base = true;
  if (!settings.empty()) {
    add_prefix(site, around, version);
    prefixes.insert(prefixes.begin(), fs::path(value_in(settings, "home")).parent_path());
    has_base = to_lower(value_in(settings, "include-system-site-packages")) == "true";
  }
  if (has_base && text_of("PYTHONNOUSERSITE").empty()) {
    const fs::path user = user_base(text_of("PYTHONUSERBASE"), text_of("HOME"));
    if (user.empty())
      site.is_whole = false;
    else
      add_site(site, user / "lib" / version / "site-packages");
  }
  bool has_library = false;
  Folders searched;  // folders that may contain sitecustomize
  for (const fs::path& prefix : prefixes) {
    if (has_base) add_prefix(site, prefix, version);
    for (const char* library : {"lib64", "lib"}) {
      has_library |= is_on_disk(prefix / library / version / "os.py");
      add_folder(searched, prefix / library / version);
    }
  }
  searched.insert(searched.end(), site.folders.begin(), site.folders.end());
  site.is_whole &= has_library && text_of("PYTHONHOME").empty() &&
                   text_of("PYTHONPLATLIBDIR").empty() &&
                   std::ranges::none_of(searched, may_add_folders);
  return site;
}

}  // namespace hvd::launcher
