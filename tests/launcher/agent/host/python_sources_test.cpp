// Tests of the words by which a Python program shows that it may use its rank.
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
  bool is_plain(const std::vector<std::string>& command) const {
    return has_no_word_of_ranks(command, path_.string());
  }

 private:
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("python_sources." + std::to_string(::getpid()));
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
