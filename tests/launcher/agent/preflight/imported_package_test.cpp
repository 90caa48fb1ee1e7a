#include "launcher/agent/preflight/imported_package.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using hvd::Environment;
using namespace hvd::launcher;
namespace fs = std::filesystem;

namespace {

// An interpreter and its folders, without executable files.
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
  ImportedPackage look(const std::vector<std::string>& arguments = {"train.py"},
                       const Environment& environment = {},
                       const std::string& interpreter = "usr/bin/python3") const {
    return find_imported_package(path(interpreter), arguments, root_.string(), environment);
  }
  // Returns the folder of the refused original package, or an empty string.
  std::string find(const std::vector<std::string>& arguments = {"train.py"},
                   const Environment& environment = {},
                   const std::string& interpreter = "usr/bin/python3") const {
    const ImportedPackage package = look(arguments, environment, interpreter);
    return package.kind == ImportedPackage::Kind::kOriginal ? package.folder : "";
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

TEST_CASE("a package is missing only where the whole import path is known") {
  using enum ImportedPackage::Kind;
  Tree tree;
  const Environment home = {{"HOME", tree.path("home")}};
  CHECK(tree.look({"train.py"}, home).kind == kUnknown);  // no standard library next to this Python
  tree.write("usr/lib/python3.11/os.py", "");
  CHECK(tree.look({"train.py"}, home).kind == kNone);
  CHECK(tree.look({"-c", "import json"}, home).kind == kNone);
  CHECK(tree.look({"-I", "train.py"}, home).kind == kUnknown);
  CHECK(tree.look({"train.py"}, {{"PYTHONHOME", "/"}}).kind == kUnknown);
  tree.write("usr/lib/python3.11/site-packages/__editable__.pth", "import __editable___horovod\n");
  CHECK(tree.look({"train.py"}, home).kind == kUnknown);
  fs::remove(tree.path("usr/lib/python3.11/site-packages/__editable__.pth"));
  tree.install("usr/lib/python3.11/site-packages/horovodrun/site", false);
  tree.write("usr/lib/python3.11/site-packages/horovodrun.pth", "horovodrun/site\n");
  const ImportedPackage ours = tree.look({"train.py"}, home);
  CHECK(ours.kind == kFound);
  CHECK(ours.folder == tree.path("usr/lib/python3.11/site-packages/horovodrun/site"));
  // A program that does not import the package is not refused.
  tree.install("usr/lib/python3.11/site-packages", true);
  CHECK(tree.look({"-c", "import json"}, home).kind == kFound);
  CHECK(tree.look({"train.py"}, home).kind == kOriginal);
}

TEST_CASE("a comment names no package, and an indented import may never run") {
  Tree tree;
  const auto ask = [&](auto* in_sources, const std::string& code) {
    tree.write("ask.py", code);
    return in_sources(tree.path("usr/bin/python3"), {"ask.py"}, tree.path(""), Environment());
  };
  for (const char* code : {"# faster than horovod\n", "x = 1  # horovod\nprint(x)\n"}) {
    CAPTURE(code);
    CHECK(ask(mentions_horovod, code) == Mention::kNone);
  }
  for (const char* code :
       {"f('#', 'horovod')\n", "try:\n  import horovod\nexcept ImportError: pass\n"}) {
    CAPTURE(code);
    CHECK(ask(mentions_horovod, code) == Mention::kSome);
    CHECK(ask(imports_horovod, code) == Mention::kNone);
  }
  CHECK(ask(imports_horovod, "import os; import horovod.torch as hvd\n") == Mention::kSome);
  CHECK(ask(imports_torch_backend, "import horovod.torch as hvd\n") == Mention::kNone);
  for (const char* code :
       {"if x:\n  import horovod.torch.distributed\n", "from horovod.torch import distributed\n"}) {
    CAPTURE(code);
    CHECK(ask(imports_torch_backend, code) == Mention::kSome);
  }
}

TEST_CASE("a folder is put on an import path only if it hides no other package") {
  Tree tree;
  CHECK(!has_horovod_alone(""));
  CHECK(!has_horovod_alone(tree.path("site")));
  tree.install("site", false);
  CHECK(has_horovod_alone(tree.path("site")));
  tree.write("site/__pycache__/x.pyc", "");
  CHECK(has_horovod_alone(tree.path("site")));
  tree.write("site/horovod_torch_backend.py", "");
  tree.write("site/horovod_torch_backend-0.90.0.dist-info/METADATA", "");
  CHECK(has_horovod_alone(tree.path("site")));
  tree.write("site/numpy/__init__.py", "");
  CHECK(!has_horovod_alone(tree.path("site")));
}

TEST_CASE("the commands against an original end with the one that restores ours") {
  Tree tree;
  const std::string python = tree.path("venv/bin/python3"),
                    site = tree.path("venv/lib/site-packages");
  CHECK(how_to_uninstall_original(python, site) == python + " -m pip uninstall horovod");
  tree.write("venv/pyvenv.cfg", "home = /usr/bin\nuv = 0.13.9\n");
  CHECK(how_to_uninstall_original(python, site) ==
        "uv pip uninstall --python " + python + " horovod");
  tree.write("venv/lib/site-packages/horovodrun/__main__.py", "");
  CHECK(how_to_uninstall_original(python, site) ==
        "uv pip uninstall --python " + python + " horovod, then " + python +
            " -m horovodrun --version, which prints how to restore the command horovodrun");
}
