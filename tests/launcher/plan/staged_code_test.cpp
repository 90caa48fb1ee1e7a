#include "launcher/plan/staged_code.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

struct Project {
  Project() {
    std::string name = (fs::temp_directory_path() / "hvd-stage-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder = name;
  }
  Project(const Project&) = delete;
  ~Project() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  std::shared_ptr<const StagedCode> read() const {
    auto code = read_staged_code({folder}, folder, false);
    REQUIRE_MESSAGE(code.ok(), code.status().message());
    return *code;
  }
  fs::path folder;
};

// The copy that a host makes from the parts: its files by name, and whether the digest matches.
struct Copy {
  std::map<std::string, std::string> files;
  size_t parts = 0;
  size_t largest = 0;
  bool is_whole = false;
};

Copy copy(const StagedCode& code) {
  Copy copy;
  Digest digest{};
  StagedParts parts(code.entries, "--stage");
  for (;;) {
    const auto part = parts.next();
    REQUIRE_MESSAGE(part.ok(), part.status().message());
    if (!*part) return copy;
    ++copy.parts;
    copy.largest = std::max(copy.largest, (*part)->bytes.size());
    if ((*part)->kind == StageKind::kEnd) {
      copy.is_whole = (*part)->bytes == as_text(digest);
      continue;
    }
    digest = next_digest(digest, **part);
    if ((*part)->kind == StageKind::kLink) copy.files[(*part)->path] = "-> " + (*part)->bytes;
    if ((*part)->kind == StageKind::kFile) copy.files[(*part)->path] = (*part)->bytes;
    if ((*part)->kind == StageKind::kMore) copy.files[(*part)->path] += (*part)->bytes;
  }
}

}  // namespace

TEST_CASE("staged code comes in small pieces, whole, for every host anew") {
  const Project project;
  const std::string large(300'000, 'x'), round(2 * 65536, 'y');
  project.write("train.py", "print(1)\n");
  project.write("lib/large", large);
  project.write("lib/round", round);
  project.write("lib/empty", "");
  project.write(".git/config", "no");
  project.write("lib/__pycache__/a.pyc", "no");
  fs::create_symlink("large", project.folder / "lib/link");
  const auto code = project.read();
  for (int host = 0; host < 2; ++host) {
    const Copy got = copy(*code);
    CHECK(got.is_whole);
    CHECK(got.largest == 65536);
    CHECK(got.files == std::map<std::string, std::string>{{"./train.py", "print(1)\n"},
                                                          {"./lib/large", large},
                                                          {"./lib/round", round},
                                                          {"./lib/empty", ""},
                                                          {"./lib/link", "-> large"}});
  }
}

TEST_CASE("a file that changes while it is sent is noticed, one that goes is named") {
  const Project project;
  project.write("a", std::string(100'000, 'x'));
  const auto code = project.read();
  project.write("a", std::string(70'000, 'x'));
  CHECK_FALSE(copy(*code).is_whole);
  project.write("a", std::string(100'000, 'z'));
  CHECK_FALSE(copy(*code).is_whole);
  fs::remove(project.folder / "a");
  StagedParts parts(code->entries, "--stage");
  Status status;
  while (status.ok()) {
    const auto part = parts.next();
    if (part.ok()) REQUIRE(*part);
    status = part.status();
  }
  CHECK(status.message() == cat("--stage: cannot read ",
                                (fs::canonical(project.folder) / "a").string(),
                                ": No such file or directory"));
}

TEST_CASE("a file that has become a pipe holds nobody up") {
  const Project project;
  project.write("a", "print(1)\n");
  const auto code = project.read();
  fs::remove(project.folder / "a");
  REQUIRE(::mkfifo((project.folder / "a").c_str(), 0600) == 0);
  StagedParts parts(code->entries, "--stage");
  REQUIRE(parts.next().ok());  // the first part is the folder
  CHECK(parts.next().status().message() ==
        cat("--stage: ", (fs::canonical(project.folder) / "a").string(),
            " is no longer a regular file; do not change the code while horovodrun copies it"));
}

TEST_CASE("a pipe and a socket are left out by name, and no command has them") {
  const Project project;
  project.write("a", "print(1)\n");
  CHECK(describe_special(*project.read()).empty());
  fs::create_directory(project.folder / "run");
  REQUIRE(::mkfifo((project.folder / "run/pipe").c_str(), 0600) == 0);
  const auto code = project.read();
  CHECK(describe_special(*code) ==
        "--stage leaves out run/pipe, which is a FIFO, a socket or a device");
  CHECK(check_words(*code, {"python3", "a"}).ok());
  CHECK(check_words(*code, {"python3", "a", "./run/pipe"}).message() ==
        "--stage: ./run/pipe is a FIFO, a socket or a device, which is not copied: name a file");
  REQUIRE(::mkfifo((project.folder / "other").c_str(), 0600) == 0);
  const std::string both = describe_special(*project.read());
  CHECK_MESSAGE(both.ends_with(" and 1 more, which are FIFOs, sockets or devices"), both);
}

TEST_CASE("an entry that is neither a file nor a directory is not staged") {
  const auto code = read_staged_code({"/dev/null"}, "/", false);
  REQUIRE_FALSE(code.ok());
  CHECK(code.status().message() == "--stage: /dev/null is neither a file nor a directory");
}

TEST_CASE("more than code is refused before a byte of it is read") {
  const Project project;
  project.write("data", "");
  fs::resize_file(project.folder / "data", (uint64_t{1} << 30) + 1);  // takes no disk space
  const auto code = read_staged_code({project.folder}, project.folder, false);
  REQUIRE_FALSE(code.ok());
  CHECK(code.status().message() ==
        cat("--stage: more than 1 GiB, of which 1024 MiB or more are in ",
            (fs::canonical(project.folder) / "data").string(),
            ": stage the code alone, and let data lie where all hosts see it"));
  fs::create_directories(project.folder / "sets" / "train");
  fs::rename(project.folder / "data", project.folder / "sets" / "train" / "data");
  const auto deeper = read_staged_code({project.folder}, project.folder, false);
  REQUIRE_FALSE(deeper.ok());
  CHECK(deeper.status().message().find(
            "in " + (fs::canonical(project.folder) / "sets:").string()) != std::string::npos);
}

TEST_CASE("environments of this machine are no code, unless --stage names one") {
  const Project project;
  project.write("train.py", "");
  project.write("conda-meta.txt", "");
  project.write(".venv/pyvenv.cfg", "");
  project.write(".venv/lib/torch.so", "");
  project.write("tools/env/conda-meta/history", "");
  project.write("tools/env/bin/python", "");
  project.write("node_modules/a/index.js", "");
  project.write(".tox/log", "");
  project.write("module/.git", "gitdir: elsewhere");
  const auto files = copy(*project.read()).files;
  CHECK(files == std::map<std::string, std::string>{{"./train.py", ""},
                                                    {"./conda-meta.txt", ""},
                                                    {"./module/.git", "gitdir: elsewhere"}});
  const auto named = read_staged_code({project.folder / ".venv"}, project.folder, false);
  REQUIRE(named.ok());
  CHECK(copy(**named).files ==
        std::map<std::string, std::string>{{".venv/pyvenv.cfg", ""}, {".venv/lib/torch.so", ""}});
}

TEST_CASE("a command that names a file of a directory that is not copied is refused") {
  const Project project;
  project.write("src/train.py", "");
  project.write(".venv/pyvenv.cfg", "");
  fs::create_directory(project.folder / ".venv/bin");
  fs::create_symlink("/opt/none/python3", project.folder / ".venv/bin/python");
  project.write("node_modules/run.js", "");
  const std::string place = fs::canonical(project.folder).string();
  const std::string environment =
      "/.venv, an environment of Python, which is not copied: give the ranks its packages by "
      "--stage-env, and name python3 or another Python of the hosts";
  const auto said = [&](const fs::path& directory, std::vector<std::string> command) {
    const auto code = read_staged_code({project.folder}, directory, false);
    REQUIRE(code.ok());
    return check_words(**code, command).message();
  };
  CHECK(said(project.folder, {".venv/bin/python", "src/train.py"}) ==
        cat("--stage: .venv/bin/python lies in ", place, environment));
  CHECK(said(project.folder / "src", {"../.venv/bin/python", "train.py"}) ==
        cat("--stage: ../.venv/bin/python lies in ", place, environment));
  CHECK(said(project.folder, {"node", "./node_modules/run.js"}) ==
        cat("--stage: ./node_modules/run.js lies in ", place,
            "/node_modules, which is not copied: name a file outside of it"));
  // Other words stay as they are, also those that name no file here.
  CHECK(said(project.folder, {"python3", "src/train.py", "--skip", ".venv", "node_modules/new",
                              place + "/.venv/bin/python"}) == "");
}

TEST_CASE("several paths are one copy, each at its place") {
  const Project project;
  project.write("job/train.py", "train");
  project.write("job/parts/model.py", "model");
  project.write("data/set.csv", "1");
  project.write("settings.yml", "a: 1");
  const auto read = [&](std::vector<fs::path> paths, const fs::path& directory) {
    return read_staged_code(paths, directory, false);
  };
  const fs::path& root = project.folder;
  const auto files = read({root / "job", root / "data" / "set.csv", root / "job" / "parts"}, root);
  REQUIRE_MESSAGE(files.ok(), files.status().message());
  CHECK((*files)->working_directory == ".");
  const Copy together = copy(**files);
  CHECK(together.is_whole);
  CHECK(together.files.at("job/train.py") == "train");
  CHECK(together.files.at("job/parts/model.py") == "model");
  CHECK(together.files.at("data/set.csv") == "1");
  // The ranks run in the copy of horovodrun's working directory.
  const auto within = read({root / "settings.yml", root / "job"}, root / "job" / "parts");
  REQUIRE_MESSAGE(within.ok(), within.status().message());
  CHECK((*within)->working_directory == "parts");
  CHECK(copy(**within).files.at("settings.yml") == "a: 1");
  CHECK(copy(**within).files.at("./parts/model.py") == "model");
  const auto clash = read({root / "job" / "train.py", root / "train.py"}, "/");
  CHECK(clash.status().message().find("No such file") != std::string::npos);
  project.write("train.py", "other");
  CHECK(read({root / "job" / "train.py", root / "train.py"}, "/nowhere")
            .status()
            .message()
            .find("would both be train.py in the copy") != std::string::npos);
}

}  // namespace hvd::launcher
