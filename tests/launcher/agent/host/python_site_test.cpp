// Tests of the folders of Python interpreters, in trees without executables and on this machine.
#include "launcher/agent/host/python_site.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

using hvd::Environment;
using namespace hvd::launcher;
namespace fs = std::filesystem;

namespace {

class Tree {
 public:
  Tree() {
    char name[] = "/tmp/python-site-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root_ = name;
    write("usr/bin/python3.11", "");
    write("usr/lib/python3.11/os.py", "");
    fs::create_symlink("python3.11", root_ / "usr/bin/python3");
  }
  ~Tree() { fs::remove_all(root_); }
  Tree(const Tree&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void make(const std::string& name) const { fs::create_directories(root_ / name); }
  void make_environment(const std::string& name, const std::string& settings) const {
    write(name + "/pyvenv.cfg", "home = " + path("usr/bin") + "\n" + settings);
    make(name + "/bin");
    fs::create_symlink(path("usr/bin/python3"), path(name + "/bin/python"));
    make(name + "/lib/python3.11/site-packages");
  }
  PythonSite look(const std::string& interpreter = "usr/bin/python3",
                  Environment environment = {}) const {
    if (value_of(environment, "HOME").empty()) environment.emplace_back("HOME", path("home"));
    return python_site(path(interpreter), root_.string(), environment);
  }
  std::vector<std::string> folders(const std::string& interpreter = "usr/bin/python3",
                                   const Environment& environment = {}) const {
    std::vector<std::string> names;
    for (const fs::path& folder : look(interpreter, environment).folders) {
      names.push_back(folder.lexically_relative(root_).string());
    }
    return names;
  }

 private:
  fs::path root_;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE(
    "a distribution's Python has the user's folder, the administrator's and its own, in this "
    "order") {
  const Tree tree;
  CHECK(tree.folders().empty());
  tree.make("usr/lib/python3/dist-packages");
  tree.make("usr/local/lib/python3.11/dist-packages");
  tree.make("home/.local/lib/python3.11/site-packages");
  tree.make("home/.local/lib/python3.10/site-packages");
  CHECK(tree.folders() == Names{"home/.local/lib/python3.11/site-packages",
                                "usr/local/lib/python3.11/dist-packages",
                                "usr/lib/python3/dist-packages"});
  CHECK(tree.look().is_whole);
  CHECK(tree.folders("usr/bin/python3", {{"PYTHONNOUSERSITE", "1"}}).size() == 2);
  tree.make("base/lib/python3.11/site-packages");
  CHECK(tree.folders("usr/bin/python3", {{"PYTHONUSERBASE", tree.path("base")}})[0] ==
        "base/lib/python3.11/site-packages");
  tree.make("usr/lib64/python3.11/site-packages");  // as on Fedora
  CHECK(tree.folders()[2] == "usr/lib64/python3.11/site-packages");
}

TEST_CASE("a virtual environment has its own folder, and the base's only where it says so") {
  const Tree tree;
  tree.make("usr/lib/python3/dist-packages");
  tree.make("home/.local/lib/python3.11/site-packages");
  tree.make_environment("venv", "include-system-site-packages = false\n");
  tree.make_environment("open", "include-system-site-packages = True\n");
  CHECK(tree.folders("venv/bin/python") == Names{"venv/lib/python3.11/site-packages"});
  CHECK(tree.look("venv/bin/python").is_whole);
  CHECK(tree.folders("open/bin/python") == Names{"open/lib/python3.11/site-packages",
                                                 "home/.local/lib/python3.11/site-packages",
                                                 "usr/lib/python3/dist-packages"});
  CHECK(tree.look("open/bin/python").is_whole);
}

TEST_CASE(
    "an environment of conda, and a link to an interpreter, have the folder beside the "
    "executable") {
  const Tree tree;
  tree.write("conda/envs/train/bin/python3.12", "");
  tree.write("conda/envs/train/lib/python3.12/os.py", "");
  tree.make("conda/envs/train/lib/python3.12/site-packages");
  fs::create_symlink("python3.12", tree.path("conda/envs/train/bin/python"));
  tree.make("bin");
  fs::create_symlink(tree.path("conda/envs/train/bin/python"), tree.path("bin/python"));
  for (const char* interpreter : {"conda/envs/train/bin/python", "bin/python"}) {
    CAPTURE(interpreter);
    CHECK(tree.folders(interpreter) == Names{"conda/envs/train/lib/python3.12/site-packages"});
    CHECK(tree.look(interpreter).is_whole);
  }
}

TEST_CASE("PyPy has folders with its own name") {
  const Tree tree;
  tree.write("opt/pypy/bin/pypy3.10", "");
  tree.write("opt/pypy/lib/pypy3.10/os.py", "");
  tree.make("opt/pypy/lib/pypy3.10/site-packages");
  CHECK(tree.folders("opt/pypy/bin/pypy3.10") == Names{"opt/pypy/lib/pypy3.10/site-packages"});
  CHECK(tree.look("opt/pypy/bin/pypy3.10").is_whole);
}

TEST_CASE("PYTHONPATH comes first, and an empty entry is the working directory") {
  const Tree tree;
  tree.make("usr/lib/python3/dist-packages");
  tree.make("named");
  CHECK(tree.folders("usr/bin/python3", {{"PYTHONPATH", "named:" + tree.path("missing") +
                                                            "::" + tree.path("named")}}) ==
        Names{"named", ".", "usr/lib/python3/dist-packages"});
}

TEST_CASE("files .pth add folders, absolute and relative ones, and code in them may add more") {
  const Tree tree;
  tree.make("usr/lib/python3/dist-packages/inner");
  tree.make("source");
  tree.make("late");
  tree.write("usr/lib/python3/dist-packages/b.pth", tree.path("late") + "\n");
  tree.write("usr/lib/python3/dist-packages/a.pth",
             "# a comment\n" + tree.path("source") + "\r\ninner\nimport os; os.sep\n/nowhere\n");
  tree.write("source/more.pth", tree.path("usr") + "\n");  // this .pth file is not in a site folder
  CHECK(tree.folders() == Names{"usr/lib/python3/dist-packages", "source",
                                "usr/lib/python3/dist-packages/inner", "late"});
  CHECK(tree.look().is_whole);
  CHECK(tree.look().named.size() == 3);
  for (const char* code :
       {"import site; site.addsitedir('/base')", "import sys; sys.path.append('/x')",
        "import __editable___own_1_0_finder; __editable___own_1_0_finder.install()"}) {
    CAPTURE(code);
    tree.write("usr/lib/python3/dist-packages/c.pth", std::string(code) + "\n");
    CHECK(!tree.look().is_whole);
  }
}

TEST_CASE("an interpreter whose folders files do not show is not whole") {
  const Tree tree;
  for (const char* name : {"PYTHONHOME", "PYTHONPLATLIBDIR"}) {
    CHECK(!tree.look("usr/bin/python3", {{name, "/x"}}).is_whole);
  }
  tree.write("embedded/bin/python3.11", "");  // the library of this Python is in a zip file
  CHECK(!tree.look("embedded/bin/python3.11").is_whole);
  CHECK(!python_site(tree.path("usr/bin/python3"), "/", {}).is_whole);  // without HOME
  CHECK(!python_site(tree.path("missing/python3"), "/", {{"HOME", "/"}}).is_whole);
  tree.write("usr/lib/python3.11/sitecustomize.py", "import apport\napport.install()\n");
  CHECK(tree.look().is_whole);
  tree.write("usr/lib/python3.11/sitecustomize.py", "import site\nsite.addsitedir('/x')\n");
  CHECK(!tree.look().is_whole);
  fs::remove(tree.path("usr/lib/python3.11/sitecustomize.py"));
  tree.write("named/usercustomize.py", "import sys\nsys.path.append('/x')\n");
  CHECK(!tree.look("usr/bin/python3", {{"PYTHONPATH", "named"}}).is_whole);
}

namespace {

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const output = ::popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  char line[4096];
  while (std::fgets(line, sizeof line, output) != nullptr) {
    lines.emplace_back(line, std::strcspn(line, "\n"));
  }
  ::pclose(output);
  return lines;
}

}  // namespace

TEST_CASE("every folder of packages in sys.path of this machine's Pythons is found, in its order") {
  const Tree tree;
  const std::string system = "/usr/bin/python3";
  if (!fs::exists(system)) return;
  const std::string venv = tree.path("bare"), open = tree.path("with-system");
  if (!lines_of(system + " -m venv --without-pip " + venv + " && " + system +
                " -m venv --without-pip --system-site-packages " + open + " || echo no venv")
           .empty()) {
    return;
  }
  tree.make("named");
  const Environment environment = {{"HOME", tree.path("home")}, {"PYTHONPATH", tree.path("named")}};
  for (const std::string& interpreter : {system, venv + "/bin/python3", open + "/bin/python3"}) {
    CAPTURE(interpreter);
    const std::string version =
        lines_of(system + " -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").at(0);
    tree.make("home/.local/lib/python" + version + "/site-packages");
    std::vector<std::string> found;
    const PythonSite site = python_site(interpreter, "/", environment);
    for (const fs::path& folder : site.folders) found.push_back(folder.string());
    const std::vector<std::string> real = lines_of(
        "HOME=" + tree.path("home") + " PYTHONPATH=" + tree.path("named") + " " + interpreter +
        " -c 'import os, sys; print(\"\\n\".join(p for p in sys.path if os.path.isdir(p) "
        "and (\"-packages\" in p or \"named\" in p)))'");
    REQUIRE(!real.empty());
    size_t at = 0;
    for (const std::string& folder : real) {
      CAPTURE(folder);
      while (at < found.size() && found[at] != folder) ++at;
      CHECK(at < found.size());
    }
    CHECK(site.is_whole);
  }
}
