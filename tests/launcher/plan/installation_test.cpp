#include "launcher/plan/installation.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/settings.h"
#include "base/text.h"

using hvd::cat;
using hvd::environment_variable;
using namespace hvd::launcher;
namespace fs = std::filesystem;

namespace {

// Empty files in a folder; restores this process's variables and working directory at the end.
class Installed {
 public:
  Installed() {
    char name[] = "/tmp/installed-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root_ = fs::canonical(name);
    fs::current_path(root_);
  }
  ~Installed() {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("VIRTUAL_ENV");
    if (environment_) ::setenv("VIRTUAL_ENV", environment_->c_str(), 1);
    fs::current_path(directory_);
    fs::remove_all(root_);
  }
  Installed(const Installed&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, const std::string& text = "") const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
    fs::permissions(root_ / name, fs::perms::owner_all);
  }
  void make_environment(const std::string& prefix, const std::string& settings) const {
    write(prefix + "/pyvenv.cfg", settings);
    write(prefix + "/bin/python3");
  }
  // Installs a wheel, and returns the folder of its programs.
  std::string install(const std::string& prefix) const {
    const std::string packages = prefix + "/lib/python3.11/site-packages";
    write(packages + "/horovodrun/bin/horovodrun");
    write(packages + "/horovodrun/site/horovod/__init__.py");
    write(packages + "/horovodrun/site/horovod/libhorovod.so");
    return path(packages + "/horovodrun/bin");
  }
  // Makes the environment of uvx, which is first in PATH, and installs a wheel there.
  std::string install_by_uvx() const {
    make_environment("cache/archive-v0/x", kNoSystem);
    write("cache/CACHEDIR.TAG");
    ::setenv("PATH", cat(path("cache/archive-v0/x/bin"), ":", path("usr/bin")).c_str(), 1);
    ::unsetenv("VIRTUAL_ENV");
    return install("cache/archive-v0/x");
  }
  std::string left(const std::string& folder) const {
    leave_tool_environment(installation_prefix(folder));
    return environment_variable("PATH").value_or("");
  }
  static constexpr char kNoSystem[] = "home = /usr/bin\ninclude-system-site-packages = false\n";

 private:
  fs::path root_, directory_ = fs::current_path();
  std::string path_ = environment_variable("PATH").value_or("");
  std::optional<std::string> environment_ = environment_variable("VIRTUAL_ENV");
};

}  // namespace

TEST_CASE("a wheel has its parts around the program, and its environment above them") {
  Installed tree;
  const std::string folder = tree.install("venv");
  CHECK(installation_prefix(folder) == tree.path("venv"));
  CHECK(find_library(folder, "") ==
        tree.path("venv/lib/python3.11/site-packages/horovodrun/site/horovod/libhorovod.so"));
  CHECK(find_python_package(folder) ==
        tree.path("venv/lib/python3.11/site-packages/horovodrun/site"));
  CHECK(find_python(folder).empty());
  CHECK(find_environment_python(folder).empty());
  tree.make_environment("venv", Installed::kNoSystem);
  CHECK(find_python(folder) == tree.path("venv/bin/python3"));
  CHECK(find_environment_python(folder) == tree.path("venv/bin/python3"));
}

TEST_CASE("pip install --target has neither a Python nor an environment, wherever the folder is") {
  Installed tree;
  for (const std::string target : {"a/b/c/d/target", "a/b/c/target"}) {
    tree.make_environment("a", Installed::kNoSystem);
    tree.write("a/b/bin/python3");
    tree.write(target + "/horovodrun/bin/horovodrun");
    tree.write(target + "/horovodrun/site/horovod/libhorovod.so");
    const std::string folder = tree.path(target + "/horovodrun/bin");
    CHECK(installation_prefix(folder) == tree.path(target));
    CHECK(find_python(folder).empty());
    CHECK(find_environment_python(folder).empty());
  }
}

TEST_CASE("an installation by CMake is found from its bin, in an environment too") {
  Installed tree;
  tree.write("opt/bin/horovodrun");
  CHECK(installation_prefix(tree.path("opt/bin")) == tree.path("opt"));
  CHECK(find_environment_python(tree.path("opt/bin")).empty());
  tree.make_environment("opt", Installed::kNoSystem);
  CHECK(find_environment_python(tree.path("opt/bin")) == tree.path("opt/bin/python3"));
  CHECK(find_python(tree.path("opt/bin")).empty());
}

TEST_CASE("only the environment of a tool, without a framework, is left out") {
  Installed tree;
  const auto is_tool = [&] { return is_tool_environment(tree.path("venv")); };
  tree.make_environment("venv", Installed::kNoSystem);
  tree.install("venv");
  tree.write("venv/CACHEDIR.TAG");  // uv venv writes this file too
  CHECK(!is_tool());
  for (const char* mark : {"venv/uv-receipt.toml", "venv/pipx_metadata.json"}) {
    tree.write(mark);
    CHECK(is_tool());
    CHECK(find_environment_python(tree.path("venv/lib/python3.11/site-packages/horovodrun/bin"))
              .empty());
    CHECK(find_python(tree.path("venv/lib/python3.11/site-packages/horovodrun/bin")).empty());
    tree.write("venv/lib/python3.11/site-packages/torch/__init__.py");  // pipx inject
    CHECK(!is_tool());
    fs::remove_all(tree.path("venv/lib/python3.11/site-packages/torch"));
    tree.write("venv/pyvenv.cfg", "include-system-site-packages = true\n");
    CHECK(!is_tool());
    tree.write("venv/pyvenv.cfg", Installed::kNoSystem);
    fs::remove(tree.path(mark));
  }
}

TEST_CASE("ranks take the active environment, .venv or PATH in place of the environment of uvx") {
  Installed tree;
  const std::string folder = tree.install_by_uvx();
  const std::string with_tool = environment_variable("PATH").value_or("");
  CHECK(tree.left(folder) == with_tool);  // the only Python
  CHECK(!environment_variable("VIRTUAL_ENV"));
  tree.write("usr/bin/python3");
  CHECK(tree.left(folder) == tree.path("usr/bin"));
  tree.install_by_uvx();
  tree.make_environment(".venv", Installed::kNoSystem);
  CHECK(tree.left(folder) == cat(tree.path(".venv/bin"), ":", tree.path("usr/bin")));
  CHECK(environment_variable("VIRTUAL_ENV") == tree.path(".venv"));
  tree.install_by_uvx();
  tree.make_environment("active", Installed::kNoSystem);
  ::setenv("VIRTUAL_ENV", tree.path("active").c_str(), 1);
  CHECK(tree.left(folder) == cat(tree.path("active/bin"), ":", tree.path("usr/bin")));
}

TEST_CASE("an environment of the user stays first on PATH") {
  Installed tree;
  const std::string folder = tree.install_by_uvx();
  tree.write("usr/bin/python3");
  tree.write("cache/archive-v0/x/lib/python3.11/site-packages/torch/__init__.py");  // uvx --with
  const std::string with_tool = environment_variable("PATH").value_or("");
  CHECK(tree.left(folder) == with_tool);
  tree.make_environment("venv", Installed::kNoSystem);
  const std::string own = tree.install("venv");
  const std::string named = cat(tree.path("venv/bin"), ":", tree.path("usr/bin"));
  ::setenv("PATH", named.c_str(), 1);
  CHECK(tree.left(own) == named);
  // pipx adds a link to PATH, but not the environment.
  tree.write("venv/pipx_metadata.json");
  ::setenv("PATH", tree.path("usr/bin").c_str(), 1);
  tree.make_environment(".venv", Installed::kNoSystem);
  CHECK(tree.left(own) == tree.path("usr/bin"));
}
