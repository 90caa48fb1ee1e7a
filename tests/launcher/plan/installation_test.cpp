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

// Files without contents that matter, and this process's variables and working directory, restored.
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

TEST_CASE("an installation by CMake is found from its bin, in an environment too") {
  Installed tree;
  tree.write("opt/bin/horovodrun");
  CHECK(installation_prefix(tree.path("opt/bin")) == tree.path("opt"));
  CHECK(find_environment_python(tree.path("opt/bin")).empty());
  tree.make_environment("opt", Installed::kNoSystem);
  CHECK(find_environment_python(tree.path("opt/bin")) == tree.path("opt/bin/python3"));
  CHECK(find_python(tree.path("opt/bin")).empty());
}
