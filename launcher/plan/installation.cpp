#include "launcher/plan/installation.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

namespace fs = std::filesystem;

namespace {

// Returns the library in the wheel that contains the executable in `folder`, or an empty text.
std::string find_in_wheel(const std::string& folder) {
  return first_existing({cat(folder, "/../site/horovod/libhorovod.so")});
}

}  // namespace

std::string executable_folder() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

std::string first_existing(const std::vector<std::string>& candidates) {
  for (const std::string& candidate : candidates) {
    std::error_code error;
    if (fs::exists(candidate, error)) return fs::path(candidate).lexically_normal().string();
  }
  return {};
}

Result<std::string> find_agent(const std::string& folder) {
  const std::vector<std::string> places = {cat(folder, "/horovod-agent"),
                                           cat(folder, "/../libexec/horovod/horovod-agent")};
  for (const std::string& place : places) {
    if (::access(place.c_str(), R_OK | X_OK) == 0) {
      return fs::path(place).lexically_normal().string();
    }
  }
  return not_found(cat("horovod-agent is neither in ", folder, " nor in ",
                       fs::path(cat(folder, "/../libexec/horovod")).lexically_normal().string(),
                       "; install it next to horovodrun"));
}

std::string installed_library(const std::string& folder) {
  return fs::path(cat(folder, "/" HVD_LIBRARY_FROM_PROGRAMS "/libhorovod.so.1"))
      .lexically_normal()
      .string();
}

std::string find_library(const std::string& folder, const std::string& chosen) {
  if (!chosen.empty()) return first_existing({chosen});
  const std::string library =
      first_existing({installed_library(folder), cat(folder, "/../lib/libhorovod.so.1")});
  return library.empty() ? find_in_wheel(folder) : library;
}

std::string installation_prefix(const std::string& folder) {
  const fs::path programs = fs::path(cat(folder, "/")).lexically_normal().parent_path();
  if (find_in_wheel(folder).empty()) return programs.parent_path().string();
  // The executable's folder is PACKAGES/horovodrun/bin.
  const fs::path packages = programs.parent_path().parent_path();
  const bool is_of_python =
      packages.filename().string().ends_with("-packages") &&
      packages.parent_path().filename().string().starts_with("python3") &&
      packages.parent_path().parent_path().filename().string().starts_with("lib");
  // `pip install --target` puts the commands into TARGET/bin.
  if (!is_of_python) return packages.string();
  return packages.parent_path().parent_path().parent_path().string();
}

std::string find_python(const std::string& folder) {
  const std::string prefix = installation_prefix(folder);
  if (find_in_wheel(folder).empty() || is_tool_environment(prefix)) return {};
  const std::string python = cat(prefix, "/bin/python3");
  return ::access(python.c_str(), X_OK) == 0 ? python : "";
}

std::string find_environment_python(const std::string& folder) {
  const std::string prefix = installation_prefix(folder);
  const bool is_environment =
      !first_existing({cat(prefix, "/pyvenv.cfg"), cat(prefix, "/conda-meta")}).empty();
  return is_environment && !is_tool_environment(prefix)
             ? first_existing({cat(prefix, "/bin/python3")})
             : "";
}

std::string find_python_package(const std::string& folder) {
  const std::string package =
      first_existing({cat(folder, "/../python/horovod"), cat(folder, "/../site/horovod"),
                      cat(folder, "/" HVD_PYTHON_FROM_PROGRAMS "/horovod")});
  return package.empty() ? "" : fs::path(package).parent_path().string();
}

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

// Returns the active environment, or the .venv that uv would choose in the working directory; may be empty.
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
  // uvx creates its environments in archive-v0 of its cache.
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
