#include "launcher/plan/tool_environment.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

bool is_present(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_same(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error);
}

bool has_framework(const fs::path& prefix) {
  std::error_code error;
  for (fs::directory_iterator at(prefix / "lib", error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with("python3")) continue;
    for (const char* name : {"torch", "tensorflow", "keras", "jax", "mxnet", "numpy"}) {
      if (is_present(at->path() / "site-packages" / name)) return true;
    }
  }
  return false;
}

bool sees_system_packages(const fs::path& prefix) {
  std::ifstream file(prefix / "pyvenv.cfg", std::ios::binary);
  const std::string text = to_lower(std::string{std::istreambuf_iterator<char>(file), {}});
  return text.find("include-system-site-packages = false") == std::string::npos;
}

bool has_python(const fs::path& folder) {
  return is_present(folder / "python3") || is_present(folder / "python");
}

// The environment that is active, or that uv would choose for a project in the working directory; else empty.
std::string project_environment(const fs::path& tool) {
  const std::string named = environment_variable("VIRTUAL_ENV").value_or("");
  if (!named.empty() && !is_same(named, tool) && has_python(fs::path(named) / "bin")) return named;
  std::error_code error;
  const fs::path beside = fs::current_path(error) / ".venv";
  return !error && has_python(beside / "bin") ? beside.string() : "";
}

}  // namespace

bool is_tool_environment(const std::string& prefix) {
  const fs::path at(prefix);
  // uvx has its environments in archive-v0 of its cache.
  const bool is_in_cache_of_uv = at.parent_path().filename().string().starts_with("archive-v") &&
                                 is_present(at.parent_path().parent_path() / "CACHEDIR.TAG");
  const bool is_of_tool = is_in_cache_of_uv || is_present(at / "uv-receipt.toml") ||
                          is_present(at / "pipx_metadata.json");
  return is_of_tool && !sees_system_packages(at) && !has_framework(at);
}

void leave_tool_environment(const std::string& prefix) {
  const fs::path tool(prefix);
  std::vector<std::string> folders = split(environment_variable("PATH").value_or(""), ':');
  if (folders.empty() || !is_same(folders.front(), tool / "bin") || !is_tool_environment(prefix))
    return;
  folders.erase(folders.begin());
  if (const std::string project = project_environment(tool); !project.empty()) {
    if (folders.empty() || !is_same(folders.front(), fs::path(project) / "bin"))
      folders.insert(folders.begin(), project + "/bin");
    ::setenv("VIRTUAL_ENV", project.c_str(), 1);
  } else if (std::ranges::none_of(folders, has_python)) {
    return;
  }
  ::setenv("PATH", join(folders, ":").c_str(), 1);
}

}  // namespace hvd::launcher
