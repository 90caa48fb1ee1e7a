// Tests of the words in a Python program that show that it may use its rank.
#include "launcher/agent/host/python_sources.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace hvd::launcher;

namespace {

class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }
  bool is_plain(const std::vector<std::string>& command) const {
    return has_no_word_of_ranks(command, path_.string());
  }

 private:
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("python_sources." + std::to_string(::getpid()) + "." + std::to_string(count_++));
  static inline int count_ = 0;
};

}  // namespace

TEST_CASE("a source mentions ranks by variables, calls and libraries") {
  for (const char* text : {"os.environ['LOCAL_RANK']", "import horovod.torch", "WORLD_SIZE = 2",
                           "from mpi4py import MPI", "jax.distributed.initialize()"}) {
    CAPTURE(text);
    CHECK(mentions_ranks(text));
  }
  CHECK(!mentions_ranks("import torch\nmodel.fit(x, epochs=3)\nprint('done')"));
}

TEST_CASE("the script, the modules that it imports, and packages beside it are read") {
  const Folder folder;
  folder.write("train.py", "import os, helper as h\nfrom package.part import thing\n");
  folder.write("helper.py", "x = 1\n");
  folder.write("package/__init__.py", "from . import part\n");
  folder.write("package/part.py", "thing = 1\n");
  folder.write("unrelated.py", "rank = 0\n");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"python3", "train.py", "--rate", "1"},
           {"/usr/bin/python3.11", "-u", "-W", "ignore", "train.py"},
           {"python", "-m", "train"},
           {"./train.py"}}) {
    CAPTURE(command.back());
    CHECK(folder.is_plain(command));
  }
  folder.write("package/part.py", "import os; thing = os.environ['RANK']\n");
  CHECK(!folder.is_plain({"python3", "train.py"}));
}

TEST_CASE("an import is found in every form, and in the folders that the caller names") {
  const Folder folder, other;
  other.write("own/part.py", "x = 'needle'\n");
  const auto has = [](std::string_view source) {
    return source.find("needle") != std::string_view::npos;
  };
  const auto look = [&](const std::string& code) {
    folder.write("train.py", code);
    const std::vector<std::filesystem::path> more = {other.path()};
    return look_in_sources({PythonProgram::Kind::kScript, "train.py", true, ""},
                           folder.path().string(), has, more);
  };
  for (const char* code :
       {"import own.part\n", "from own import part\n", "from own import(part)\n",
        "from own import \\\n  part\n", "from own import (\n  nothing,\n  part)\n",
        "if True: import own.part\n", "x = 1; import own.part as p\n",
        "try:\n\timport own.part\nexcept ImportError: pass\n"}) {
    CAPTURE(code);
    CHECK(look(code) == Mention::kSome);
  }
  CHECK(look("import numpy\n") == Mention::kNone);
  folder.write("solver.cpython-311-x86_64-linux-gnu.so", "");
  CHECK(look("import solver\n") == Mention::kUnknown);
  CHECK(look("import solver, own.part\n") == Mention::kSome);
}

TEST_CASE("other commands, and programs that are not there, may use their ranks") {
  const Folder folder;
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"sh", "-c", "python3 train.py"},
                                             {"python3", "-c", "print(1)"},
                                             {"python3", "-"},
                                             {"python3"},
                                             {"python3", "-m", "pytest"},
                                             {"python3", "missing.py"},
                                             {}}) {
    CHECK(!folder.is_plain(command));
  }
}
