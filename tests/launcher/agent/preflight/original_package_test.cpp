#include "launcher/agent/preflight/original_package.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using hvd::Environment;
using namespace hvd::launcher;
namespace fs = std::filesystem;

namespace {

// An interpreter and its folders, without anything in them that runs.
class Tree {
 public:
  Tree() {
    char name[] = "/tmp/original-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root_ = name;
    write("usr/bin/python3.11", "");
    fs::create_symlink("python3.11", root_ / "usr/bin/python3");
    write("train.py", "import os\nimport horovod.torch as hvd\n");
  }
  ~Tree() { fs::remove_all(root_); }
  Tree(const Tree&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void install(const std::string& folder, bool is_original) {
    write(folder + "/horovod/__init__.py", "");
    write(folder + "/horovod/common/basics.py",
          is_original ? "class HorovodBasics(object):\n"
                      : "from horovod._basics_object import HorovodBasics\n");
  }
  std::string find(const std::vector<std::string>& arguments = {"train.py"},
                   const Environment& environment = {},
                   const std::string& interpreter = "usr/bin/python3") const {
    return find_original_package(path(interpreter), arguments, root_.string(), environment);
  }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("the original is found in each folder of the import path, and ours before it is not") {
  Tree tree;
  CHECK(tree.find().empty());
  tree.install("usr/lib/python3/dist-packages", true);
  CHECK(tree.find() == tree.path("usr/lib/python3/dist-packages"));
  tree.install("usr/local/lib/python3.11/dist-packages", true);
  CHECK(tree.find() == tree.path("usr/local/lib/python3.11/dist-packages"));
  tree.install("home/.local/lib/python3.11/site-packages", true);
  const Environment home = {{"HOME", tree.path("home")}};
  CHECK(tree.find({"train.py"}, home) == tree.path("home/.local/lib/python3.11/site-packages"));
  tree.install("named", true);
  tree.install("ours", false);
  const std::string named = tree.path("named"), ours = tree.path("ours");
  CHECK(tree.find({"train.py"}, {{"PYTHONPATH", "named"}}) == named);
  CHECK(tree.find({"train.py"}, {{"PYTHONPATH", named + ":" + ours}}) == named);
  CHECK(tree.find({"train.py"}, {{"PYTHONPATH", ours + ":" + named}}).empty());
  tree.install("scripts", true);
  tree.write("scripts/train.py", "import horovod\n");
  CHECK(tree.find({"scripts/train.py"}, {{"PYTHONPATH", ours}}) == tree.path("scripts"));
}

TEST_CASE("a virtual environment has folders of its own") {
  Tree tree;
  tree.write("venv/pyvenv.cfg",
             "home = " + tree.path("usr/bin") + "\ninclude-system-site-packages = false\n");
  fs::create_directories(tree.path("venv/bin"));
  fs::create_symlink(tree.path("usr/bin/python3"), tree.path("venv/bin/python"));
  tree.install("usr/lib/python3.11/site-packages", true);
  const auto find = [&] { return tree.find({"train.py"}, {}, "venv/bin/python"); };
  CHECK(find().empty());
  tree.write("venv/pyvenv.cfg",
             "home = " + tree.path("usr/bin") + "\ninclude-system-site-packages = true\n");
  CHECK(find() == tree.path("usr/lib/python3.11/site-packages"));
  tree.install("venv/lib/python3.11/site-packages", false);
  CHECK(find().empty());
}

TEST_CASE("only a program whose sources certainly import horovod is meant") {
  Tree tree;
  tree.install("usr/lib/python3.11/site-packages", true);
  tree.write("helper.py", "import horovod.torch\n");
  const auto finds = [&](const std::string& code) { return !tree.find({"-c", code}).empty(); };
  CHECK(finds("import horovod"));
  CHECK(finds("x = 1\nfrom horovod import run"));
  CHECK(finds("import horovod.torch as hvd"));
  CHECK(finds("import os, horovod.torch as hvd; hvd.init()"));
  CHECK(finds("import helper"));
  CHECK(!finds("def train():\n  import horovod"));
  CHECK(!finds("try:\n  import horovod\nexcept ImportError:\n  pass"));
  CHECK(!finds("print('import horovod')"));
  CHECK(!finds("# import horovod.torch as hvd"));
  CHECK(!finds("\"\"\"Ported from horovod to DDP: no import horovod.\"\"\""));
  CHECK(!finds("import horovod_metrics"));
  CHECK(!finds("import horovod_metrics as horovod"));
  CHECK(!finds("import torch"));
  CHECK(!finds(""));
  CHECK(tree.find({"missing.py"}).empty());
  CHECK(tree.find({}).empty());
  CHECK(tree.find({"-"}).empty());
}

TEST_CASE("a module is read where it lies, and options are understood") {
  Tree tree;
  tree.install("usr/lib/python3.11/site-packages", true);
  const std::string original = tree.path("usr/lib/python3.11/site-packages");
  tree.write("work/train.py", "import horovod\n");
  tree.write("work/run/__main__.py", "import horovod\n");
  CHECK(tree.find({"-u", "-m", "work.train", "--lr", "1"}) == original);
  CHECK(tree.find({"-m", "work.run"}) == original);
  CHECK(tree.find({"-m", "work.other"}).empty());
  CHECK(tree.find({"-uB", "-W", "ignore", "train.py", "-I"}) == original);
  for (const char* option : {"-I", "-E", "-s", "-S", "-P", "--help"}) {
    CHECK(tree.find({option, "train.py"}).empty());
  }
  CHECK(tree.find({"train.py"}, {{"PYTHONHOME", "/"}}).empty());
}
